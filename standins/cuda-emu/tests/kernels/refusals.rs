//! Texts that cannot run, and accesses outside of memory.

use std::ffi::CStr;

use super::*;

/// Returns the code and the message of a text that does not load.
pub(crate) fn refused(text: &str) -> (c_int, String) {
    let (text, mut module, mut log) = (CString::new(text).expect("no NUL"), 0, [1_u8; 200]);
    let mut options = [5, 6];
    let mut values = [log.as_mut_ptr().expose_provenance() as u64, 200];
    let code = cuModuleLoadDataEx(
        &raw mut module,
        text.as_ptr().cast(),
        2,
        options.as_mut_ptr(),
        values.as_mut_ptr(),
    );
    let log = CStr::from_bytes_until_nul(&log).map(|log| log.to_string_lossy().into_owned());
    (code, log.unwrap_or_default())
}

#[test]
fn texts_that_cannot_run_name_the_line() {
    start(0);
    let kernel = |body: &str| {
        format!(
            "{HEAD}.visible .entry k(.param .u32 a)\n{{\n.reg .b32 %r<3>;\n.reg .pred %p; .reg .b16 %h<3>; .reg .b64 %d;\n{body}\nret;\n}}\n"
        )
    };
    for (body, code, says) in [
        (
            "shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1;",
            801,
            "line 8: the stand-in does not support `shfl.sync.bfly.b32`",
        ),
        ("add.sat.s32 %r1, %r1, %r2;", 801, "line 8: the stand-in does not support `add.sat.s32`"),
        (
            "mov.b32 {%h1, %h2}, 5;\nmov.b32 {%r1, %r2, %r1}, 5;",
            801,
            "line 9: the stand-in does not support `mov` of 3 elements",
        ),
        ("mov.b32 {%r1}, %r2;", 801, "line 8: the stand-in does not support `mov` of 1 element of 32 bits"),
        (
            "mov.b64 {%r1, %r2}, %clock64;",
            801,
            "line 8: the stand-in does not support `%clock64` as an operand of anything but `mov` to one",
        ),
        ("mov.u32 %r1, %tid;", 218, "line 8: `%tid` is a vector; name an element, such as `%tid.x`"),
        ("mov.b32 %r1, {%r2, %r9};", 218, "line 8: there is no `%r9`"),
        ("mov.u8 %h1, 5;", 218, "line 8: `mov` of 8 bits"),
        ("mov.u32 %r1, %tid.x;\nmov.u16 %h1, %tid.x;\nmov.u64 %d, %clock64;\nret", 218, "line 12"),
        ("mov.u64 %r1, 5;", 218, "line 8: `mov` of 64 bits, and a register of 32 bits"),
        ("mov.u32 %d, %r1;", 218, "line 8: `mov` of 32 bits, and a register of 64 bits"),
        ("mov.u32 %r1, %d;", 218, "line 8: `mov` of 32 bits, and a register of 64 bits"),
        ("mov.pred %p, %r1;", 218, "line 8: `mov` of a predicate, and a register of 32 bits"),
        ("mov.u64 %d, %tid.x;", 218, "line 8: `mov` of 64 bits, and a register of 32 bits"),
        ("mov.u32 %r1, %clock64;", 218, "line 8: `mov` of 32 bits, and a register of 64 bits"),
        ("mov.b32 {%h1, %r1}, %r2;", 218, "line 8: `mov` of 16 bits, and a register of 32 bits"),
        ("mov.b64 {%r1, %r2}, %r1;", 218, "line 8: `mov` of 64 bits, and a register of 32 bits"),
        ("mov.b32 %r1, {%h1, %r2};", 218, "line 8: `mov` of 16 bits, and a register of 32 bits"),
        ("\n\nbar.sync 1;", 801, "line 10: the stand-in does not support barriers"),
        (".const .b8 stack[8];", 801, "line 8: the stand-in does not support `.const` in a kernel"),
        ("st.const.u32 [0], %r1;", 218, "line 8: a store to constant memory"),
        ("red.local.add.u32 [0], 1;", 801, "`red.local.add.u32`"),
        ("bfe.u16 %r1, %r2, 1, 2;", 801, "`bfe.u16`"),
        ("call foo;", 218, "line 8: there is no function `foo`"),
        ("add.u32 %r1, %r2, %r9;", 218, "line 8: there is no `%r9`"),
        ("add.u32 %r1, %r2;", 218, "line 8: `;` is unexpected"),
        ("bra nowhere;", 218, "line 8: there is no label `nowhere`"),
        ("a: a: ret;", 218, "line 8: the label `a` occurs twice"),
        ("ld.param.u32 %r1, [b];", 218, "line 8: there is no `b`"),
        (".reg .b32 %tid.x;", 218, "line 8: `%tid.x` is a special register"),
        ("@%q ret;", 218, "line 8: there is no register `%q`"),
        ("@!%r1 ret;", 218, "line 8: the guard `%r1` is not a predicate"),
        ("selp.b32 %r1, 1, 2, %r2;", 218, "line 8: `%r2` is not a predicate"),
        ("setp.lt.u32 %r1, 1, 2;", 218, "line 8: `%r1` is not a predicate"),
        ("setp.lt.u32 %p|%r1, 1, 2;", 218, "line 8: `%r1` is not a predicate"),
        ("setp.lt.and.u32 %p, 1, 2, %r1;", 218, "line 8: `%r1` is not a predicate"),
        ("ld.global.v2.u32 {%r1}, [%r2];", 218, "line 8: the vector has another length"),
        ("/* no end", 218, "line 8: a comment does not end"),
    ] {
        let (found, log) = refused(&kernel(body));
        assert!(found == code && log.contains(says), "{body}: {found}, {log}");
    }
    for text in ["", "nothing", ".target sm_70"] {
        assert_eq!(refused(text).0, 200, "{text}");
    }
    assert_eq!(refused(HEAD).0, 218, "a module without a kernel");
    assert_eq!(refused("\x7fELF and more").0, 209);
    assert_eq!(refused(&format!("{HEAD}.func f() {{ ret; }}")).0, 218, "a module without a kernel");
    assert!(refused(&format!("{HEAD}.tex f;")).1.contains("line 4"));
    // Every prefix of a text is an error or a module, never a panic.
    for end in 0..SUM.len() {
        let _ = refused(&SUM[..end]);
    }
    // Handles of modules that are gone.
    let module = load(VECTOR_ADD).expect("it loads");
    let mut function = 0;
    let name = c"_Z9vectorAddPKfS0_Pfi";
    assert_eq!(cuModuleGetFunction(&raw mut function, module, c"other".as_ptr()), 500);
    assert_eq!(cuModuleGetFunction(&raw mut function, module, name.as_ptr()), 0);
    assert_eq!(cuModuleUnload(module), 0);
    assert_eq!(cuModuleUnload(module), 400);
    assert_eq!(cuModuleGetFunction(&raw mut function, module, name.as_ptr()), 400);
    assert_eq!(run(function, 1, 1, 0, &[0; 4]), 400);
}

/// Stores one word.
pub(crate) const POKE: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry poke(.param .u64 at)
{
    .reg .b64 %at;
    ld.param.u64 %at, [at];
    st.global.u32 [%at], 7;
    ret;
}
";

#[test]
fn accesses_outside_of_memory_end_the_context() {
    // Each address is made in a new context, whose last result every later call returns.
    let dies = |make: &dyn Fn() -> u64, code: c_int| {
        start(0);
        let (kernel, good) = (function(POKE, "poke"), upload(&[0_u32; 4]));
        assert_eq!(run(kernel, 1, 1, 0, &[good]), 0);
        assert_eq!(download::<u32>(good, 4), [7, 0, 0, 0]);
        let addr = make();
        assert_eq!(run(kernel, 1, 1, 0, &[addr]), code, "{addr:#x}");
        let mut addr = 0;
        assert_eq!(cuMemAlloc_v2(&raw mut addr, 64), code, "the failure stays");
    };
    dies(&|| 0, 700);
    dies(&|| upload(&[0_u8; 1000]) + 1000, 700);
    dies(&|| upload(&[0_u8; 1002]) + 1000, 700);
    dies(&|| upload(&[0_u8; 1000]) + 6, 716);
    dies(
        &|| {
            let freed = upload(&[0_u8; 1000]);
            assert_eq!(cuMemFree_v2(freed), 0);
            freed
        },
        700,
    );
    // Memory of the program that is not registered, and memory that is registered for reading.
    let words: &'static mut [u32] = Box::leak(vec![1; 4096].into_boxed_slice());
    let pageable = words.as_mut_ptr().expose_provenance() as u64;
    dies(&|| pageable, 700);
    dies(
        &|| {
            assert_eq!(cuMemHostRegister_v2(pageable, 4096, 8), 0);
            pageable
        },
        700,
    );
    // Pinned memory.
    start(0);
    let (mut pinned, kernel) = (0, function(POKE, "poke"));
    assert_eq!(cuMemHostAlloc(&raw mut pinned, 4096, 0), 0);
    assert_eq!(run(kernel, 1, 1, 0, &[pinned + 8]), 0);
    assert_eq!(download::<u32>(pinned, 4)[2], 7);
}
