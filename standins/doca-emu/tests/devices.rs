//! Devices and representors, and the configuration that they come from.
#![expect(unsafe_code, reason = "calls of C functions, by macros")]

#[macro_use]
mod rig;

use std::ffi::CStr;
use std::ptr;

use rig::{c, open};

fn text(read: impl FnOnce(*mut std::ffi::c_char)) -> String {
    let mut buffer = [0x55; 256];
    read(buffer.as_mut_ptr());
    // SAFETY: the call wrote a string with a NUL into the buffer.
    unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_str().unwrap().to_owned()
}

fn infos() -> (*mut *mut c::doca_devinfo, Vec<*mut c::doca_devinfo>) {
    let (mut list, mut count) = (ptr::null_mut(), 0);
    ok!(doca_devinfo_create_list(&mut list, &mut count));
    // SAFETY: the call returned a list of `count` entries, which is not destroyed yet.
    (list, (0..count as usize).map(|i| unsafe { list.wrapping_add(i).read() }).collect())
}

fn address(info: *mut c::doca_devinfo) -> String {
    text(|out| ok!(doca_devinfo_get_pci_addr_str(info, out)))
}

#[test]
fn the_default_is_a_card_seen_from_both_sides() {
    rig::configure("");
    let (list, infos) = infos();
    let addresses: Vec<_> = infos.iter().map(|info| address(*info)).collect();
    let all =
        ["0000:03:00.0", "0000:03:00.1", "0000:3b:00.0", "0000:3b:00.1", "0000:b1:00.0", "0000:b1:00.1"];
    assert_eq!(addresses, all);
    for (i, info) in infos.iter().enumerate() {
        ok!(doca_dma_cap_task_memcpy_is_supported(*info));
        let dpu = i < 2;
        assert_eq!(get!(doca_devinfo_rep_cap_is_filter_all_supported(*info)), u8::from(dpu));
        assert_eq!(get!(doca_devinfo_rep_cap_is_filter_net_supported(*info)), u8::from(dpu));
        assert_eq!(get!(doca_devinfo_rep_cap_is_filter_emulated_supported(*info)), 0);
        assert_eq!(get!(doca_devinfo_get_vhca_id(*info)), i as u16);
        assert_eq!(get!(doca_devinfo_get_active_rate(*info)), 200_000_000_000);
        assert_eq!(text(|out| ok!(doca_devinfo_get_ibdev_name(*info, out, 64))), format!("mlx5_{i}"));
        assert_eq!(get!(doca_devinfo_get_pci_func_type(*info)), c::DOCA_PCI_FUNC_TYPE_PF);
        let mut mac = [0; 6];
        ok!(doca_devinfo_get_mac_addr(*info, mac.as_mut_ptr(), 6));
        assert_eq!(mac, [2, 0, 0, 0, 0, i as u8 + 1]);
        fails!(DOCA_ERROR_INVALID_VALUE, doca_devinfo_get_mac_addr(*info, mac.as_mut_ptr(), 5));
        let (mut ipv4, mut ipv6) = ([0; 4], [0; 16]);
        ok!(doca_devinfo_get_ipv4_addr(*info, ipv4.as_mut_ptr(), 4));
        ok!(doca_devinfo_get_ipv6_addr(*info, ipv6.as_mut_ptr(), 16));
        assert_eq!((ipv4[3], ipv6[0]), (i as u8 + 1, 0xfe));
        let mut lid = 0;
        fails!(DOCA_ERROR_NOT_SUPPORTED, doca_devinfo_get_lid(*info, &mut lid));
        let mut sf = 0;
        fails!(DOCA_ERROR_NOT_SUPPORTED, doca_devinfo_get_sf_index(*info, &mut sf));
        for capability in [
            c::doca_devinfo_cap_is_hotplug_manager_supported,
            c::doca_devinfo_cap_is_notification_moderation_supported,
            c::doca_devinfo_cap_is_accelerate_resource_reclaim_supported,
        ] {
            let mut supported = 7;
            // SAFETY: the info is an entry of a list that exists, and the result is a local
            // variable.
            assert_eq!(unsafe { capability(*info, &mut supported) }, c::DOCA_SUCCESS);
            assert_eq!(supported, 0);
        }
    }
    assert_eq!(text(|out| ok!(doca_devinfo_get_iface_name(infos[0], out, 256))), "p0");
    let mut small = [0; 255];
    fails!(DOCA_ERROR_INVALID_VALUE, doca_devinfo_get_iface_name(infos[0], small.as_mut_ptr(), 255));
    ok!(doca_devinfo_destroy_list(list));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_devinfo_destroy_list(list));
}

#[test]
fn addresses_are_compared_in_both_spellings() {
    rig::configure("");
    let dev = open("b1:00.1");
    let info = code!(doca_dev_as_devinfo(dev));
    for (address, equal) in
        [(c"0000:b1:00.1", 1), (c"b1:00.1", 1), (c"B1:00.1", 1), (c"b1:00.0", 0), (c"0001:b1:00.1", 0)]
    {
        assert_eq!(get!(doca_devinfo_is_equal_pci_addr(info, address.as_ptr())), equal, "{address:?}");
    }
    let mut equal = 0;
    for address in [c"", c"b1:00", c"b1:00.1 ", c"b1.00:1", c"0000:b1:00.8", c"000g:b1:00.1", c"mlx5_0"] {
        fails!(DOCA_ERROR_INVALID_VALUE, doca_devinfo_is_equal_pci_addr(info, address.as_ptr(), &mut equal));
    }
    ok!(doca_dev_close(dev));
}

#[test]
fn a_device_is_open_as_long_as_somebody_has_it() {
    rig::configure("");
    let (list, infos) = infos();
    let (first, again) = (get!(doca_dev_open(infos[0])), get!(doca_dev_open(infos[0])));
    assert_eq!(first, again);
    ok!(doca_devinfo_destroy_list(list));
    assert_eq!(address(code!(doca_dev_as_devinfo(first))), "0000:03:00.0");
    assert_eq!(open("03:00.0"), first);
    ok!(doca_dev_close(first));
    ok!(doca_dev_close(first));
    let mmap = get!(doca_mmap_create());
    ok!(doca_mmap_add_dev(mmap, first));
    fails!(DOCA_ERROR_IN_USE, doca_dev_close(first));
    ok!(doca_mmap_destroy(mmap));
    fails!(DOCA_ERROR_NOT_SUPPORTED, doca_dev_accelerate_resource_reclaim(first));
    ok!(doca_dev_close(first));
    ok!(doca_dev_close(ptr::null_mut()));
}

fn reps(
    dev: *mut c::doca_dev,
    filter: u32,
) -> (*mut *mut c::doca_devinfo_rep, Vec<*mut c::doca_devinfo_rep>) {
    let (mut list, mut count) = (ptr::null_mut(), 0);
    ok!(doca_devinfo_rep_create_list(dev, filter as i32, &mut list, &mut count));
    // SAFETY: the call returned a list of `count` entries, which is not destroyed yet.
    (list, (0..count as usize).map(|i| unsafe { list.wrapping_add(i).read() }).collect())
}

#[test]
fn the_dpu_lists_representors_of_the_hosts_functions() {
    let functions = "[[card.function]]\npci = \"0000:03:00.0\"\nside = \"dpu\"\n\
        [[card.function]]\npci = \"3B:00.0\"\nside = \"host\"\nkind = \"vf\"\nvuid = \"V1\"\nhotplug = true\n\
        [[card.function]]\npci = \"0000:3b:00.1\"\nside = \"host\"\nemulated = true\nvhca_id = 300\n\
        [[card.function]]\npci = \"0000:3b:00.2\"\nside = \"host\"\nrepresentor = false\n";
    for side in ["", "side = \"dpu\"\n"] {
        rig::configure(&format!("{side}[[card]]\n{functions}"));
        let dev = open("03:00.0");
        let info = code!(doca_dev_as_devinfo(dev));
        assert_eq!(get!(doca_devinfo_rep_cap_is_filter_emulated_supported(info)), 1);
        let (list, all) = reps(dev, c::DOCA_DEVINFO_REP_FILTER_ALL);
        let addresses: Vec<_> =
            all.iter().map(|rep| text(|out| ok!(doca_devinfo_rep_get_pci_addr_str(*rep, out)))).collect();
        assert_eq!(addresses, ["0000:3b:00.0", "0000:3b:00.1"]);
        for (filter, count) in [
            (c::DOCA_DEVINFO_REP_FILTER_NET, 1),
            (c::DOCA_DEVINFO_REP_FILTER_EMULATED, 1),
            (c::DOCA_DEVINFO_REP_FILTER_NET | c::DOCA_DEVINFO_REP_FILTER_EMULATED, 2),
        ] {
            let (list, found) = reps(dev, filter);
            assert_eq!(found.len(), count);
            ok!(doca_devinfo_rep_destroy_list(list));
        }
        assert_eq!(get!(doca_devinfo_rep_get_pci_func_type(all[0])), c::DOCA_PCI_FUNC_TYPE_VF);
        assert_eq!(get!(doca_devinfo_rep_get_is_hotplug(all[0])), 1);
        assert_eq!(text(|out| ok!(doca_devinfo_rep_get_vuid(all[0], out, 128))), "V1");
        assert_eq!(text(|out| ok!(doca_devinfo_rep_get_iface_name(all[0], out, 256))), "pf1hpf");
        assert_eq!(get!(doca_devinfo_rep_get_vhca_id(all[1])), 300);
        assert_eq!(get!(doca_devinfo_rep_is_equal_pci_addr(all[0], c"3b:00.0".as_ptr())), 1);
        let mut equal = 0;
        fails!(
            DOCA_ERROR_INVALID_VALUE,
            doca_devinfo_rep_is_equal_pci_addr(all[0], c"x".as_ptr(), &mut equal)
        );
        let rep = get!(doca_dev_rep_open(all[0]));
        ok!(doca_devinfo_rep_destroy_list(list));
        let info = code!(doca_dev_rep_as_devinfo(rep));
        assert_eq!(text(|out| ok!(doca_devinfo_rep_get_vuid(info, out, 128))), "V1");
        ok!(doca_dev_rep_close(rep));
        let (mut list, mut count) = (ptr::null_mut(), 0);
        fails!(DOCA_ERROR_INVALID_VALUE, doca_devinfo_rep_create_list(dev, 1, &mut list, &mut count));
        fails!(DOCA_ERROR_INVALID_VALUE, doca_devinfo_rep_create_list(dev, -1, &mut list, &mut count));
        ok!(doca_dev_close(dev));
    }
    rig::configure("");
    let host = open("3b:00.0");
    let (mut list, mut count) = (ptr::null_mut(), 0);
    fails!(DOCA_ERROR_NOT_SUPPORTED, doca_devinfo_rep_create_list(host, 0, &mut list, &mut count));
    ok!(doca_dev_close(host));
}

#[test]
fn a_device_says_what_it_lacks() {
    rig::configure(
        "[[card]]\nmax_tasks = 7\n[[card.function]]\npci = \"0000:03:00.0\"\nside = \"dpu\"\ndma = false\nlid = 5\n\
         kind = \"sf\"\nsf = 88\n",
    );
    let dev = open("03:00.0");
    let info = code!(doca_dev_as_devinfo(dev));
    fails!(DOCA_ERROR_NOT_SUPPORTED, doca_dma_cap_task_memcpy_is_supported(info));
    let (mut len, mut size) = (0, 0);
    fails!(DOCA_ERROR_NOT_SUPPORTED, doca_dma_cap_task_memcpy_get_max_buf_list_len(info, &mut len));
    fails!(DOCA_ERROR_NOT_SUPPORTED, doca_dma_cap_task_memcpy_get_max_buf_size(info, &mut size));
    assert_eq!(get!(doca_devinfo_get_lid(info)), 5);
    assert_eq!(get!(doca_devinfo_get_sf_index(info)), 88);
    assert_eq!(get!(doca_devinfo_get_pci_func_type(info)), c::DOCA_PCI_FUNC_TYPE_SF);
    let mut bytes = [0; 16];
    fails!(DOCA_ERROR_NOT_SUPPORTED, doca_devinfo_get_mac_addr(info, bytes.as_mut_ptr(), 6));
    fails!(DOCA_ERROR_NOT_FOUND, doca_devinfo_get_ipv4_addr(info, bytes.as_mut_ptr(), 4));
    fails!(DOCA_ERROR_OPERATING_SYSTEM, doca_devinfo_get_ipv6_addr(info, bytes.as_mut_ptr(), 16));
    let mut name = [0; 256];
    fails!(DOCA_ERROR_OPERATING_SYSTEM, doca_devinfo_get_iface_name(info, name.as_mut_ptr(), 256));
    fails!(DOCA_ERROR_OPERATING_SYSTEM, doca_devinfo_get_ibdev_name(info, name.as_mut_ptr(), 64));
    let rig = rig::Rig::idle(dev, 1);
    assert_eq!(get!(doca_dma_cap_get_max_num_tasks(rig.dma)), 7);
    fails!(DOCA_ERROR_NOT_SUPPORTED, doca_ctx_start(rig.ctx));
    rig.close();
}

#[test]
fn contexts_are_scarce_if_the_configuration_says_so() {
    rig::configure("max_contexts = 1");
    let dev = open("03:00.0");
    let first = rig::Rig::on(dev, 1);
    let second = rig::Rig::idle(open("03:00.1"), 1);
    fails!(DOCA_ERROR_NO_MEMORY, doca_ctx_start(second.ctx));
    ok!(doca_ctx_stop(first.ctx));
    first.close();
    ok!(doca_ctx_start(second.ctx));
    second.close();
}

#[test]
fn mistakes_in_the_configuration_are_named() {
    for (text, says) in [
        ("profle = \"ideal\"", "card 1: unknown field `profle`, expected one of `serial`, `profile`"),
        ("profile = \"bf3\"", "no profile `bf3`; there are: ideal, bluefield2"),
        ("faults = \"fial@5\"", "no fault `fial`"),
        ("seed = -1", "seed"),
        ("clock = \"wall\"", "unknown variant `wall`, expected `real` or `virtual`"),
        ("max_buf_size = \"2MB\"", "such as 65536, \"64K\""),
        ("max_tasks = 0", "max_tasks is 0; give 1 or more"),
        ("queue_depth = 65537", "the maximum is 65536"),
        ("side = \"left\"", "side: unknown variant `left`"),
        ("version = 3", "version is 3; give a string"),
        ("card = 5", "card: "),
        ("[[card]]\n[[card]]", "two cards have serial"),
        ("[[card]]\n[[card]]\nserial = \"B\"", "two functions have pci = `0000:03:00.0`"),
        ("[[card]]\n[[card.function]]\nside = \"dpu\"", "missing field `pci`"),
        ("[[card]]\n[[card.function]]\npci = \"3:0\"\nside = \"dpu\"", "`3:0` is not a PCI address"),
        ("[[card]]\n[[card.function]]\npci = \"03:00.0\"\nside = \"both\"", "a function must be on one side"),
        (
            "[[card]]\n[[card.function]]\npci = \"03:00.0\"\nside = \"dpu\"\nmac = \"0:1\"",
            "not a MAC address",
        ),
        (
            "[[card]]\n[[card.function]]\npci = \"03:00.0\"\nside = \"dpu\"\nspeed = 1",
            "unknown field `speed`",
        ),
        ("seed = ", "TOML parse error at line 1"),
        ("[card.comch]\nmax_msg = 1", "unknown field `max_msg`"),
    ] {
        let error = doca_emu::use_config(Some(text)).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    rig::configure("card = []");
    let (list, infos) = infos();
    assert_eq!(infos.len(), 0);
    ok!(doca_devinfo_destroy_list(list));
    // A key at the top level is the default of all cards.
    rig::configure("max_tasks = 5\n[[card]]\nmax_tasks = 6\nserial = \"A\"\n");
    let rig = rig::Rig::idle(open("03:00.0"), 1);
    assert_eq!(get!(doca_dma_cap_get_max_num_tasks(rig.dma)), 6);
    rig.close();
}

#[test]
fn errors_have_names_and_descriptions() {
    let name = |code| rig::name(code);
    assert_eq!(
        (name(0), name(2), name(30)),
        ("DOCA_SUCCESS", "DOCA_ERROR_NOT_PERMITTED", "DOCA_ERROR_SKIPPED")
    );
    assert_eq!(name(31), "DOCA_ERROR_UNKNOWN");
    for code in 0..40 {
        let text = code!(doca_error_get_descr(code));
        // SAFETY: the call returned a string that ends in NUL and is never freed.
        assert!(!unsafe { CStr::from_ptr(text) }.is_empty());
    }
}
