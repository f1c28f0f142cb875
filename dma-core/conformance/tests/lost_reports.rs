//! Tests of the suite itself, as in `faults.rs`: the cases that find an engine which never reports something.
//! They wait a short time here, because such an engine reports it at no time.

#[expect(dead_code, reason = "`faults.rs` also opens engines without a fault")]
mod faulty;

#[test]
fn every_missing_report_is_found_by_its_case() {
    let mut missed = Vec::new();
    // If the machine stands still for longer than the limit, a case fails at another report, so the limit
    // grows.
    for limit in [300, 6_000, 60_000] {
        dma_conformance::set_patience(std::time::Duration::from_millis(limit));
        missed = faulty::missed(true);
        if missed.is_empty() {
            return;
        }
    }
    panic!("{}", missed.join("\n"));
}
