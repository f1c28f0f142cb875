//! Campaigns: reading, checking, and the cells that they consist of.

use clap::ValueEnum as _;

use super::*;

#[test]
fn a_campaign_file_is_read() {
    let campaign = Campaign::from_toml(
        r#"
        name = "mine"
        engines = ["cpu", "sim:profile=dsa"]
        samples = 3
        [[sweeps]]
        sizes = "64..256"
        depths = [1, "8..32*4"]
        ops = ["copy", "sg"]
        footprints = ["hot"]
        "#,
    )
    .unwrap();
    assert_eq!(campaign.sweeps[0].depths.0, [1, 8, 32]);
    let groups = campaign.groups(&campaign.engines);
    assert_eq!(groups.len(), 2 * 3 * 3, "one baseline for each operation, size, and number of hot buffers");
    assert!(groups.iter().all(|g| g.cells.len() == 2));
    let text = toml::to_string(&campaign).unwrap();
    assert_eq!(Campaign::from_toml(&text).unwrap(), campaign, "the results contain the value");
}

#[test]
fn senseless_requests_are_named() {
    for (text, says) in [
        ("nmae = 'x'", "nmae"),
        ("samples = 0", "samples is 0"),
        ("engines = []", "no engine"),
        ("sweeps = []", "has no sweeps"),
        ("[[sweeps]]\nsizes = '2M..64'", "smaller end first"),
        ("[[sweeps]]\nsizes = []", "empty list"),
        ("[[sweeps]]\ndepths = 70000", "70000"),
        ("[[sweeps]]\nops = ['move']", "move"),
        ("rate = -1.0", "rate is -1"),
        ("seconds = nan", "seconds is NaN"),
        ("not toml", "expected"),
    ] {
        let error = Campaign::from_toml(text).unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn batches_are_never_deeper_than_the_queue_and_no_cell_comes_twice() {
    let sweep =
        Sweep { depths: Values(vec![1, 4]), batches: Some(Values(vec![1, 2, 32])), ..Sweep::default() };
    let campaign = Campaign { sweeps: vec![sweep.clone(), sweep], ..Campaign::default() };
    let groups = campaign.groups(&["cpu".to_owned()]);
    let cells: Vec<_> = groups.iter().flat_map(|g| &g.cells).map(|c| (c.depth, c.batch)).collect();
    assert_eq!(cells, [(1, 1), (4, 1), (4, 2), (4, 4)]);
}

#[test]
fn every_preset_is_a_sound_campaign() {
    for preset in Preset::value_variants() {
        let campaign = preset.campaign().unwrap_or_else(|e| panic!("{preset:?}: {e}"));
        assert_eq!(Some(campaign.name.as_str()), preset.to_possible_value().as_ref().map(|v| v.get_name()));
        let text = toml::to_string(&campaign).unwrap();
        assert_eq!(Campaign::from_toml(&text).unwrap(), campaign, "{preset:?} as a file");
    }
}
