//! The command line: its options, and the campaigns that they describe.

use clap::{CommandFactory, Parser as _};

use super::arguments::{Arguments, Command};
use crate::plan::{Campaign, Verify};

fn plan(words: &[&str]) -> Result<Campaign, String> {
    let words = ["dma-bench", "run"].iter().chain(words);
    match Arguments::try_parse_from(words).map_err(|e| e.to_string())?.command {
        Command::Run(arguments) => arguments.plan(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_command_line_is_consistent() {
    Arguments::command().debug_assert();
}

#[test]
fn less_than_nothing_is_refused_by_what_it_is() {
    let compare = ["compare", "a.json", "b.json"];
    let cases = [(&compare[..], "--fail-if-slower"), (&compare, "--noise")];
    for (command, option) in cases {
        for less in ["-5", "-5%", "-0.5%", "-inf%"] {
            let words = ["dma-bench"].iter().chain(command).chain([&option, &less]);
            let error = Arguments::try_parse_from(words).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let (error, says) =
                (error.to_string(), format!("`{less}` is less than 0; write a percentage of"));
            assert!(error.contains(&says) && error.contains(option) && !error.contains("tip:"), "{error}");
        }
    }
}

#[test]
fn a_missing_percentage_does_not_take_the_next_argument() {
    let words = ["dma-bench", "compare", "a.json", "b.json", "--fail-if-slower", "--all"];
    let error = Arguments::try_parse_from(words).unwrap_err().to_string();
    assert!(error.contains("`--all` is not a percentage; write 5%"), "{error}");
}

#[test]
fn options_change_a_preset() {
    let campaign =
        plan(&["--preset", "quick", "-e", "cpu", "-o", "4K", "-q", "2,4", "-t", "1", "-y"]).unwrap();
    assert_eq!(campaign.engines, ["cpu"]);
    assert!(campaign.sweeps.iter().all(|s| s.sizes.0 == [4096] && s.depths.0 == [2, 4]));
    assert!((campaign.seconds * f64::from(campaign.samples) - 1.0).abs() < 1e-9);
    assert_eq!(campaign.verify, Verify::All);
}

#[test]
fn the_least_values_are_taken() {
    for words in [
        &["-t", "0.0003"][..],
        &["-t", "1", "--samples", "10000"],
        &["-t", "0.0001", "--samples", "1"],
        &["--rate", "0.5"],
    ] {
        plan(words).unwrap();
    }
    assert_eq!(plan(&["--rate", "0.01"]).unwrap().rate, Some(0.01));
}

#[test]
fn senseless_values_are_refused() {
    for (words, says) in [
        (&["-o", "4Q"][..], "4Q"),
        (&["-q", "0"], "contains 0"),
        (&["-t", "-1"], "--time -1: give seconds, more than 0"),
        (&["-t=-1"], "more than 0"),
        (&["-t", "nan"], "`nan` is not a number of seconds"),
        (&["-t", "5s"], "`5s` is not a number of seconds; write 5, 0.5 or 1e-3"),
        (&["--warm-up", "NaN"], "'--warm-up"),
        (&["-n", "1e5"], "`1e5` is not a count; write 1000, 100k or 2M"),
        (&["-n", "1000000000000000"], "count is 1000000000000000; allowed are"),
        (&["-o", "-1"], "'--size"),
        (&["--samples", "-1"], "'--samples"),
        (&["-s", "-1"], "'--segments"),
        (&["--rate", "-1"], "'--rate"),
        (&["-o", "99999999999999999999"], "too great"),
        (&["-q", ""], "the value is empty"),
        (&["--samples", "1000000000", "-t", "0.02"], "samples is 1000000000; allowed are 1 to 10000"),
        (&["-w", "gather:0"], "segments are a number from 1 to 4096"),
        (&["-w", "copy:4"], "a copy has no segments"),
        (&["--cpus", "999999"], "may not use CPU 999999"),
        (&["--cpus", "x"], "write 0,2-3 or node0"),
        (&["--cpus", "node999"], "there is no NUMA node 999"),
        (&["--numa", "x"], "`x` names no NUMA node; write 0, or 0,1"),
        (&["--numa", "0,1,2"], "`0,1,2` names no NUMA node"),
        (&["--numa", "0,"], "`0,` names no NUMA node"),
        (&["--steady", "2%", "--duration", "5"], "cannot be used with"),
        (&["--steady", "-1"], "`-1` is less than 0"),
        (&["--steady", "0"], "steady is 0; allowed are 0.0001 to 1"),
        (&["-w", "crc32c", "-d", "push+pull"], "crc32c writes nothing"),
        (&["-d", "push+push"], "push+pull"),
        (&["--duration", "5", "-t", "1"], "cannot be used with"),
        (&["-t", "1", "-n", "5"], "cannot be used with"),
        (&["-w", "move"], "move"),
        (&["--rate", "fast"], "fast"),
        (&["-t", "0.0001"], "--time 0.0001 is too short for 3 samples"),
        (&["-t", "0.0001"], "give --time 0.0003 or more"),
        (&["-t", "0.01", "--samples", "10000"], "give --time 1 or more, or fewer --samples"),
        (&["-t", "1e300"], "--time 1e300 is too long"),
        (&["-t", "1e300"], "give --time 43200000 or less"),
        (&["-t=-1e300"], "--time -1e300:"),
        (&["--warm-up", "1e300"], "warm-up is 1e300;"),
        (&["--rate", "0.001"], "rate is 0.001; allowed are 0.01 to"),
        (&["--samples", "0"], "samples is 0"),
        (&["--campaign", "/nowhere.toml"], "/nowhere.toml"),
        (&["--preset", "quick", "--campaign", "x"], "cannot be used with"),
    ] {
        let error = plan(words).unwrap_err();
        assert!(error.contains(says), "{words:?}: {error}");
    }
}
