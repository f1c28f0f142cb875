//! Tests of the registry: the backends of this build, and a backend that a program adds.

use std::sync::{Arc, Once};

use dma::{
    Backend, Discovered, DmaEngine, EngineName, Error, ErrorKind, Finding, NameFormat, OptionInfo, Result,
    Verdict,
};

/// A backend of the program, whose engines are simulated devices.
#[derive(Debug)]
struct Mine {
    name: &'static str,
    options: &'static [OptionInfo],
}

const DEPTH: OptionInfo = OptionInfo::new("depth", "N", "64", "the deepest queue");
static MINE: Mine = Mine { name: "mine", options: &[DEPTH] };

impl Backend for Mine {
    fn name_format(&self) -> NameFormat {
        NameFormat::new(self.name, self.options).with_device("a word")
    }

    fn about(&self) -> &'static str {
        "for tests"
    }

    fn is_hardware(&self) -> bool {
        true
    }

    fn open(&self, name: &EngineName) -> Result<Arc<dyn DmaEngine>> {
        let mut options = dma::sim::SimOptions::new();
        name.read_options(self.name_format(), |key, value| {
            match key {
                "depth" => options.depth = Some(value.number(1..=64)?),
                _ => return Err(value.not_read()),
            }
            Ok(())
        })?;
        match name.device() {
            None | Some("first") => Ok(Arc::new(dma::sim::SimEngine::open(&options)?)),
            Some(other) => Err(Error::new(ErrorKind::NotFound, format!("unknown device {other}"))),
        }
    }

    fn discover(&self) -> Vec<Discovered> {
        let device = |device| {
            EngineName::of(self.name_format()).with_device(device).expect("the option can be part of a name")
        };
        let first = self.open(&device("first")).map(|engine| engine.info().clone());
        vec![
            Discovered::new(device("first"), first),
            Discovered::new(device("second"), Err(ErrorKind::InUse.into())),
        ]
    }

    fn doctor(&self) -> Vec<Finding> {
        vec![Finding::warning("weather", "rain", "wait")]
    }
}

fn added() {
    static ADDED: Once = Once::new();
    ADDED.call_once(|| dma::register(&MINE).expect("the name is free"));
}

#[test]
fn an_added_backend_is_known_everywhere() {
    added();
    assert!(dma::backends().iter().any(|backend| backend.name() == "mine"));
    let engine = dma::open("mine:first,depth=4").expect("it opens");
    assert_eq!(engine.info().limits.max_queue_depth, 4);
    let discovered = dma::discover();
    let mine: Vec<_> = discovered.iter().filter(|found| found.name.backend() == "mine").collect();
    assert_eq!(
        mine.iter().map(|found| found.name.to_string()).collect::<Vec<_>>(),
        ["mine:first", "mine:second"]
    );
    dma::open_name(&mine[0].name).expect("an engine that is discovered can be opened");
    // A simulated device does not count as usable hardware, although it can be opened.
    let [diagnosis] = &dma::doctor(&["mine"]).expect("the name is known")[..] else { panic!("one backend") };
    assert_eq!((diagnosis.name, diagnosis.is_hardware), ("mine", true));
    assert_eq!((diagnosis.opens, diagnosis.is_usable), (true, false));
    let lines: Vec<_> = diagnosis.findings.iter().map(|f| (f.what.as_str(), f.verdict)).collect();
    let expected = [
        ("weather", Verdict::Warning),
        ("opens as `mine:first`", Verdict::Ok),
        ("opens as `mine:second`", Verdict::Bad),
    ];
    assert_eq!(lines, expected);
    assert!(dma::doctor(&[]).expect("all").iter().any(|diagnosis| diagnosis.name == "mine"));
}

#[test]
fn names_of_an_added_backend_say_what_would_be_right() {
    added();
    for (name, kind, says) in [
        ("mine:colour=red", ErrorKind::InvalidArgument, "there are: depth"),
        ("mine:depth=65", ErrorKind::OutOfRange, "from 1 to 64"),
        ("mine:third", ErrorKind::NotFound, "unknown device third"),
        ("mime:first", ErrorKind::InvalidArgument, "did you mean `mine`?"),
    ] {
        let error = dma::open(name).expect_err(name);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says) && error.to_string().contains(name), "{error}");
    }
}

#[test]
fn names_that_are_taken_or_cannot_be_written_are_refused() {
    added();
    static TAKEN: [Mine; 3] = [
        Mine { name: "mine", options: &[] },
        Mine { name: "cpu", options: &[] },
        Mine { name: "auto", options: &[] },
    ];
    for taken in &TAKEN {
        let error = dma::register(taken).expect_err(taken.name);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("another backend has this name"), "{error}");
    }
    const COLON: OptionInfo = OptionInfo::new("a:b", "N", "1", "cannot be written");
    static BAD: [Mine; 5] = [
        Mine { name: "", options: &[] },
        Mine { name: "Mine", options: &[] },
        Mine { name: "my engine", options: &[] },
        Mine { name: "twice", options: &[DEPTH, DEPTH] },
        Mine { name: "colon", options: &[COLON] },
    ];
    for bad in &BAD {
        assert_eq!(dma::register(bad).expect_err(bad.name).kind(), ErrorKind::InvalidArgument);
        assert!(dma::backends().iter().all(|backend| backend.name() != bad.name));
    }
}

/// Returns valid and invalid values of an option, for the format that the option declares.
fn values(info: &OptionInfo) -> (Vec<&'static str>, Vec<&'static str>) {
    match info.value {
        "N" => (vec!["1"], vec!["", "x", "-1", "1.5", "99999999999999999999"]),
        "BYTES" => (vec!["65536", "64K", "64k", "64KiB"], vec!["", "x", "2MB", "99999999999G"]),
        "TIME" => (vec!["5us"], vec!["", "5", "5m"]),
        "FOLDER" => (vec!["/nowhere"], vec![""]),
        "NAME" => (vec!["p0"], vec![""]),
        "ENGINE|any|none" => (
            vec!["sim", "sim:seed=1;depth=4", "sim|sim:seed=1", "any", "none"],
            vec!["", "cpu", "auto", "smi", "sim:", "sim|", "sim|sim", "any|sim"],
        ),
        "RULE[+RULE...]" => (vec!["fail@5+lose:p=0.1"], vec!["fial@5"]),
        "0xMASK|N[-N][+N...]" => (vec!["0x1", "0"], vec!["", "0x", "3-1"]),
        "IP:PORT" => {
            (vec!["127.0.0.1:0", "[::1]:7000"], vec!["", "127.0.0.1", "somewhere:1", "1.2.3.4:99999"])
        }
        "ADDRESS[+ADDRESS...]" => (vec!["00:04.0", "00:04.0+0000:80:04.1"], vec!["", "4.1"]),
        choices if choices.contains('|') => (choices.split('|').collect(), vec!["", "no-such-word"]),
        other => panic!("{}: add values of the format {other} to this function", info.key),
    }
}

#[test]
fn every_option_of_every_backend_takes_what_it_states_and_nothing_else() {
    added();
    let mut seen = 0;
    for backend in dma::backends() {
        let open = |key: &str, value: &str| {
            let mut name = EngineName::of(backend.name_format())
                .with_option(key, value)
                .expect("the option can be part of a name");
            if (backend.name(), key) == ("sim", "coalesce") {
                // Only some profiles can coalesce interrupts, so name one of them.
                name = name.with_option("profile", "bluefield3").expect("the option can be part of a name");
            }
            dma::open_name(&name)
        };
        let is_refused = |error: &Error| {
            let kinds = [ErrorKind::InvalidArgument, ErrorKind::OutOfRange, ErrorKind::Unsupported];
            kinds.contains(&error.kind())
        };
        for info in backend.name_format().options {
            seen += 1;
            let (good, bad) = values(info);
            for value in good {
                // The value is valid even without the SDK or the device, and on other CPUs.
                if let Err(error) = open(info.key, value) {
                    let names = error.to_string().contains(&format!("option {}=", info.key));
                    let lacks = error.kind() == ErrorKind::Unsupported && !names;
                    assert!(lacks || !is_refused(&error), "{error}");
                }
            }
            for value in bad {
                let error = open(info.key, value).expect_err("no such value");
                assert!(is_refused(&error), "{error}");
                let said = error.to_string();
                assert!(
                    said.contains(&format!("option {}={value}", info.key)) && !error.hint().is_empty(),
                    "{said}"
                );
            }
            assert!(!info.about.is_empty() && !info.default.is_empty(), "{info:?}");
        }
        let error = open("no_such_option", "1").expect_err("no such option");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        for info in backend.name_format().options {
            assert!(error.hint().contains(info.key), "{error} lists {}", info.key);
        }
    }
    assert!(seen >= 3 + 15, "cpu and sim alone have more options than {seen}");
}

#[test]
fn options_with_effects_beyond_the_device_are_refused_in_names_from_elsewhere() {
    for backend in dma::backends() {
        for info in backend.name_format().options {
            let name = EngineName::of(backend.name_format())
                .with_option(info.key, "/nowhere")
                .expect("the option can be part of a name");
            let refused = name.refuse_untrusted(backend.name_format());
            assert_eq!(
                refused.is_err(),
                ["lib", "dev", "sysfs", "listen", "export"].contains(&info.key),
                "{name}"
            );
            if let Err(error) = refused {
                let said = dma::parse_untrusted(&name.to_string()).expect_err("it needs trust");
                assert_eq!(
                    (said.kind(), error.kind()),
                    (ErrorKind::PermissionDenied, ErrorKind::PermissionDenied)
                );
            }
        }
    }
}
