//! Variables of modules, memory of threads, and fields of bits.

use super::*;

declare! {
    fn cuModuleGetGlobal_v2(addr: *mut u64, len: *mut usize, module: usize, name: *const c_char);
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
}

/// Counts threads, looks their numbers up in a table, and reverses four words in memory of the thread.
const TABLES: &str = "
.version 7.3
.target sm_70
.address_size 64
.visible .global .align 4 .u32 counter;
.global .align 8 .b8 bytes[6] = {1, 0xff, 3, -4, 5};
.const .align 4 .f32 factors[2][2] = {{0f40000000, 3.0}, {-4, 0.5}};
.global .s16 open[] = {-1, 2, -3};

.visible .entry tables(.param .u64 out)
{
    .local .align 16 .b8 depot[32];
    .reg .pred %p;
    .reg .b16 %h<3>;
    .reg .b32 %r<9>;
    .reg .f32 %f<3>;
    .reg .b64 %rd<9>;
    .reg .b64 %SP, %SPL;
    mov.u64 %SPL, depot;
    cvta.local.u64 %SP, %SPL;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %rd1, %r1, 32, %rd1;
    // A count of all threads.
    atom.global.add.u32 %r2, [counter], 1;
    // Tables.
    mov.u64 %rd2, bytes;
    cvt.u64.u32 %rd3, %r1;
    add.s64 %rd2, %rd2, %rd3;
    ld.global.nc.s8 %r3, [%rd2];
    mov.u64 %rd4, factors;
    cvta.const.u64 %rd4, %rd4;
    and.b32 %r4, %r1, 3;
    mad.wide.u32 %rd4, %r4, 4, %rd4;
    ld.f32 %f1, [%rd4];
    ld.const.f32 %f2, [factors+4];
    mul.f32 %f1, %f1, %f2;
    ld.global.s16 %r5, [open+4];
    // Words of the thread: written by its addresses, read by generic ones in the reverse order.
    st.local.v4.u32 [%SPL+16], {%r3, %r4, %r5, %r1};
    ld.u32 %r6, [%SP+28];
    st.local.u32 [depot], %r6;
    ld.local.u32 %r7, [depot];
    st.global.v4.u32 [%rd1], {%r7, %r3, %r5, %r2};
    st.global.f32 [%rd1+16], %f1;
    ret;
}
";

fn global(module: usize, name: &std::ffi::CStr) -> Result<(u64, usize), c_int> {
    let (mut addr, mut len) = (0, 0);
    match cuModuleGetGlobal_v2(&raw mut addr, &raw mut len, module, name.as_ptr()) {
        0 => Ok((addr, len)),
        code => Err(code),
    }
}

fn free_memory() -> usize {
    let (mut free, mut total) = (0, 0);
    assert_eq!(cuMemGetInfo_v2(&raw mut free, &raw mut total), 0);
    free
}

#[test]
fn modules_have_variables_and_threads_have_memory() {
    start(1);
    let before = free_memory();
    let module = load(TABLES).expect("it loads");
    let other = load(TABLES).expect("each module has variables of its own");
    let mut kernel = 0;
    assert_eq!(cuModuleGetFunction(&raw mut kernel, module, c"tables".as_ptr()), 0);
    let mut local = 0;
    assert_eq!(cuFuncGetAttribute(&raw mut local, 3, kernel), 0);
    assert_eq!(local, 32);
    let (counter, len) = global(module, c"counter").expect("it exists");
    assert_eq!((len, download::<u32>(counter, 1)), (4, vec![0]));
    let (open, len) = global(module, c"open").expect("it exists");
    assert_eq!((len, download::<i16>(open, 3)), (6, vec![-1, 2, -3]));
    assert_eq!(global(module, c"depot"), Err(500));
    assert_eq!(cuMemFree_v2(counter), 1, "a variable is no allocation of the program");
    let out = upload(&[0_u32; 5 * 8]);
    for (round, factor) in [(0, 3_f32), (1, 7.0)] {
        assert_eq!(run(kernel, 1, 5, 0, &[out]), 0);
        let found = download::<u32>(out, 5 * 8);
        for (thread, words) in (0..).zip(found.chunks(8)) {
            let byte = [1, -1, 3, -4, 5][thread as usize];
            assert_eq!(words[..4], [thread, byte as u32, -3_i32 as u32, round * 5 + thread]);
            let of_thread = [2.0, factor, -4.0, 0.5][thread as usize % 4];
            assert_eq!(f32::from_bits(words[4]), of_thread * factor);
        }
        // The program changes a constant between launches.
        let (factors, len) = global(module, c"factors").expect("it exists");
        assert_eq!(len, 16);
        let changed = 7_f32;
        assert_eq!(cuMemcpy(factors + 4, ptr::from_ref(&changed).expose_provenance() as u64, 4), 0);
    }
    assert_eq!(download::<u32>(counter, 1), [10]);
    let (untouched, _) = global(other, c"counter").expect("it exists");
    assert_eq!(download::<u32>(untouched, 1), [0]);
    assert_eq!((cuModuleUnload(module), cuModuleUnload(other), cuMemFree_v2(out)), (0, 0, 0));
    assert_eq!(global(module, c"counter"), Err(400));
    assert_eq!(free_memory(), before, "the memory of variables is freed with the module");
    // A module may have variables alone.
    let module = load(&format!("{HEAD}.global .b8 alone[100000];")).expect("it loads");
    let (alone, len) = global(module, c"alone").expect("it exists");
    assert_eq!((len, download::<u8>(alone, len)), (100_000, vec![0; 100_000]));
}

#[test]
fn accesses_beyond_the_memory_of_a_thread_end_the_context() {
    for access in ["ld.local.u32 %r, [depot+8];", "st.local.u32 [depot+6], 7;", "ld.u32 %r, [%at+8];"] {
        start(0);
        let kernel = function(
            &format!(
                "{HEAD}.entry k() {{ .local .b32 depot[2]; .reg .b32 %r; .reg .b64 %at; mov.u64 %at, depot; \
                 cvta.local.u64 %at, %at; ld.u32 %r, [%at+4]; {access} ret; }}"
            ),
            "k",
        );
        let code = if access.contains("+6") { 716 } else { 700 };
        assert_eq!(run(kernel, 1, 3, 0, &[]), code, "{access}");
    }
}

#[test]
fn wrong_variables_are_refused_and_take_no_memory() {
    start(0);
    let before = free_memory();
    for (variable, code, says) in [
        (".extern .global .u32 a;", 801, "line 4: the stand-in does not support variables of other modules"),
        (".global .u32 a = b;", 801, "line 4: the stand-in does not support `b` as the value"),
        (".global .u32 a = {1, 2};", 218, "line 4: `a` has fewer elements than values"),
        (".global .u32 a[];", 218, "line 4: `a` is too long, or empty"),
        (".global .b64 a[99999999999];", 218, "line 4: `a` is too long"),
        (".global .u32 a; .const .u32 a;", 218, "line 4: the variable `a` occurs twice"),
        (".global .v2 .u32 a;", 801, "line 4: the stand-in does not support the type `.v2`"),
        (".global .pred a;", 218, "line 4: a variable has no type `.pred`"),
        (".global .u32 a", 218, "line 4: the text ends too early"),
        (".global .u32 a = {1", 218, "the text ends too early"),
        (".global .u32 a; .entry k() { .local .b8 b[70000]; ret; }", 801, "more than 64 KiB"),
        (".global .u32 a; .entry k() { shfl.b32 f; }", 801, "`shfl.b32`"),
    ] {
        let (found, log) = refusals::refused(&format!("{HEAD}{variable}\n"));
        assert!(found == code && log.contains(says), "{variable}: {found}, {log}");
    }
    assert_eq!(free_memory(), before);
    let (code, log) = refusals::refused(&format!("{HEAD}.global .b8 a[67108865];"));
    assert_eq!(code, 218, "{log}");
    let huge = format!("{HEAD}.global .b8 a[67108864];");
    assert_eq!(load(&huge), Err(2), "the device has no room for it");
}

#[test]
fn fields_of_bits_are_those_of_the_reference() {
    start(0);
    let pairs = &pairs();
    for (at, len) in [(0, 0), (0, 32), (23, 8), (31, 1), (5, 64), (40, 3), (0, 64), (63, 9), (7, 300)] {
        // Only the lowest 8 bits of both numbers count.
        let bits = len & 255;
        let unsigned = |a: u64, width: u32| {
            let inside = if at >= width { 0 } else { a >> at };
            if bits >= 64 { inside } else { inside & ((1 << bits) - 1) }
        };
        // A number with a sign continues without end.
        let signed = |a: i64| {
            let (inside, unused) = (i128::from(a) >> at, 128 - bits.min(127));
            if bits == 0 { 0 } else { (inside << unused) >> unused }
        };
        let op = |name: &str| format!("{name} %d, %a, {at}, {len}");
        check!(pairs, &op("bfe.u32"), u32 => u32, "u32", "u32", |a, _b| unsigned(a.into(), 32) as u32);
        check!(pairs, &op("bfe.u64"), u64 => u64, "u64", "u64", |a, _b| unsigned(a, 64));
        check!(pairs, &op("bfe.s32"), i32 => i32, "s32", "s32", |a, _b| signed(a.into()) as i32);
        check!(pairs, &op("bfe.s64"), i64 => i64, "s64", "s64", |a, _b| signed(a) as i64);
        let op = |name: &str| format!("{name} %d, %a, %b, {at}, {len}");
        let insert = |a: u64, b: u64, width: u32| {
            let field: u128 = (((1_u128 << bits.min(64)) - 1) << at) & ((1_u128 << width) - 1);
            (u128::from(b) & !field | (u128::from(a) << at) & field) as u64
        };
        check!(pairs, &op("bfi.b32"), u32 => u32, "b32", "b32", |a, b| insert(a.into(), b.into(), 32) as u32);
        check!(pairs, &op("bfi.b64"), u64 => u64, "b64", "b64", |a, b| insert(a, b, 64));
    }
}
