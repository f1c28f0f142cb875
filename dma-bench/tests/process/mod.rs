//! Observes a child process of a test.

use std::fs;
use std::process::Child;
use std::time::Duration;

use test_support::patience::Patience;

/// Waits until a process has used a given CPU time, in hundredths of a second.
pub(crate) fn has_used(child: &Child, hundredths: u64) {
    let mut patience = Patience::new();
    loop {
        patience.check("the process uses CPU time");
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("it runs");
        // The fields after the name begin with field 3, the state. User and system time, in hundredths of a
        // second, are fields 14 and 15.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        if fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap() >= hundredths {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
