use super::policy::policy_of;
use super::*;
use crate::{MemoryRequest, PageMemory};

/// Makes a directory with Linux's layout. Each node has a number, a list of cores and its free memory in KiB.
fn tree(nodes: &[(u32, &str, u64)]) -> (tempfile::TempDir, NumaNodes) {
    let dir = tempfile::tempdir().expect("a directory");
    for (node, list, kib) in nodes {
        let node_dir = dir.path().join(format!("node{node}"));
        std::fs::create_dir(&node_dir).expect("made");
        std::fs::write(node_dir.join("cpulist"), list).expect("written");
        let info = format!(
            "Node {node} MemTotal: 99999999 kB\nNode {node} MemFree:     {kib} kB\n\
             Node {node} Active(file): 0 kB\nNode {node} Inactive(file): 1000 kB\n"
        );
        std::fs::write(node_dir.join("meminfo"), info).expect("written");
    }
    std::fs::write(dir.path().join("online"), "0-1").expect("written");
    let nodes = NumaNodes::read(dir.path());
    (dir, nodes)
}

#[test]
fn cores_are_those_of_the_node() {
    let (_dir, nodes) = tree(&[
        (0, "0-2,7\n", 0),
        (1, "3-6,8\n", 0),
        (2, "\n", 0),
        (3, "5-3", 0),
        (4, "1,two", 0),
        (5, "0-99999999999", 0),
    ]);
    assert_eq!(nodes.cores(0).expect("cores"), [0, 1, 2, 7]);
    assert_eq!(nodes.cores(1).expect("cores"), [3, 4, 5, 6, 8]);
    let error = |node| nodes.cores(node).expect_err("none");
    assert_eq!(
        error(6).to_string(),
        "not found: there is no NUMA node 6; this machine has the nodes [0, 1, 2, 3, 4, 5]"
    );
    assert_eq!(error(2).kind(), ErrorKind::NotFound);
    assert!((3..6).all(|node| error(node).kind() == ErrorKind::Malformed));
    assert_eq!(NumaNodes::of_system().cores(u32::MAX).expect_err("none").kind(), ErrorKind::NotFound);
}

#[test]
fn a_kernel_without_nodes_has_one_with_everything() {
    let (_dir, nodes) = tree(&[]);
    assert_eq!(nodes.numbers().collect::<Vec<_>>(), [0]);
    assert!(!nodes.cores(0).expect("cores").is_empty());
    let request = MemoryRequest::new(5000).with_node(Some(0));
    PageMemory::on_node_of(&nodes, &request).expect("node 0 has all memory");
    let error = PageMemory::on_node_of(&nodes, &request.with_node(Some(1))).expect_err("none");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

#[test]
fn memory_is_bound_to_its_node_before_it_is_touched() {
    let (_dir, nodes) = tree(&[(0, "0", 3000), (1, "1", 3000)]);
    for (len, align, huge) in [(1, 1, false), (5000, 8192, false), (3 << 20, 4096, true)] {
        let request = MemoryRequest::new(len).with_align(align).with_huge_pages(huge);
        let mut memory = PageMemory::on_node_of(&nodes, &request.clone().with_node(Some(0))).expect("mapped");
        assert_eq!(memory.as_mut(), vec![0; len]);
        assert_eq!(policy_of(Some(memory.as_ptr())).expect("a policy"), (libc::MPOL_BIND, 1), "{len} bytes");
        let anywhere = PageMemory::on_node_of(&nodes, &request).expect("mapped");
        assert_eq!(policy_of(Some(anywhere.as_ptr())).expect("a policy").0, libc::MPOL_DEFAULT);
    }
}

#[test]
fn a_node_that_cannot_give_memory_is_an_error_with_a_remedy() {
    let (_dir, nodes) = tree(&[(0, "0", 3000), (1023, "1", 3000), (5000, "1", 3000)]);
    let error = |node, len| {
        PageMemory::on_node_of(&nodes, &MemoryRequest::new(len).with_node(Some(node))).expect_err("refused")
    };
    assert_eq!(error(2, 1).kind(), ErrorKind::NotFound);
    assert!(error(2, 1).hint().contains("[0, 1023, 5000]"));
    // Free memory and the page cache count as available.
    let too_much = error(0, (4000 << 10) + 1);
    assert_eq!((too_much.requested(), too_much.limit()), (Some((4000 << 10) + 1), Some(4000 << 10)));
    assert_eq!(too_much.kind(), ErrorKind::OutOfMemory, "{too_much}");
    // These nodes exist only in the test's directory, not in the system.
    for node in [1023, 5000] {
        let error = error(node, 1);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.hint().contains("Mems_allowed_list"), "{error}");
    }
}

#[test]
fn a_policy_of_a_thread_ends_with_the_call() {
    let (_dir, nodes) = tree(&[(0, "0", 3000), (1, "1", 3000)]);
    let policy = || policy_of(None).expect("a policy");
    let before = policy();
    let within = with_policy(&nodes, 0, || Ok(policy())).expect("allocated");
    assert_eq!((within, policy()), ((libc::MPOL_BIND, 1), before));
    let failed = with_policy(&nodes, 0, || Err::<(), _>(ErrorKind::DeviceLost.into()));
    assert_eq!((failed.expect_err("passed on").kind(), policy()), (ErrorKind::DeviceLost, before));
    assert_eq!(with_policy(&nodes, 7, || Ok(())).expect_err("none").kind(), ErrorKind::NotFound);
}

#[test]
fn lists_of_cores_are_read_as_the_kernel_writes_them() {
    assert_eq!(parse_cores("0-3,8").expect("cores"), [0, 1, 2, 3, 8]);
    assert_eq!(parse_cores("7").expect("cores"), [7]);
    for bad in ["", "a", "3-1", "1-", "0,,1", "0-999999999"] {
        let error = parse_cores(bad).expect_err(bad);
        assert!(error.hint().contains("0,2-3"), "{error}");
    }
}
