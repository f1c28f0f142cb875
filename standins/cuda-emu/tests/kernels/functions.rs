//! Functions of a module, which kernels call.

use super::refusals::refused;
use super::*;

/// As a compiler translates it: `sum_of` calls `mix` in a loop with a pointer to a variable of its own, `mix`
/// calls `fib`, which calls itself twice.
const NESTED: &str = "
.version 7.0
.target sm_70
.address_size 64

.func (.param .b32 func_retval0) fib(.param .b32 fib_param_0);

.func (.param .b32 func_retval0) fib(
    .param .b32 fib_param_0
)
{
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    ld.param.u32 %r1, [fib_param_0];
    setp.lt.u32 %p1, %r1, 2;
    mov.u32 %r8, %r1;
    @%p1 bra $L_end;
    add.s32 %r2, %r1, -1;
    { // callseq 0, 0
    .reg .b32 temp_param_reg;
    .param .b32 param0;
    st.param.b32 [param0+0], %r2;
    .param .b32 retval0;
    call.uni (retval0),
    fib,
    (
    param0
    );
    ld.param.b32 %r3, [retval0+0];
    } // callseq 0
    add.s32 %r4, %r1, -2;
    { // callseq 1, 0
    .param .b32 param0;
    st.param.b32 [param0+0], %r4;
    .param .b32 retval0;
    call.uni (retval0), fib, (param0);
    ld.param.b32 %r5, [retval0+0];
    }
    add.s32 %r8, %r3, %r5;
$L_end:
    st.param.b32 [func_retval0+0], %r8;
    ret;
}

// Adds fib(n) to the first word of a pair, and returns both words and the 64-bit factor.
.func (.param .align 8 .b8 func_retval0[16]) mix(
    .param .b64 mix_param_0,
    .param .align 8 .b8 mix_param_1[16]
)
{
    .local .align 16 .b8 __local_depot1[32];
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    .reg .b64 %SP, %SPL;
    mov.u64 %SPL, __local_depot1;
    cvta.local.u64 %SP, %SPL;
    ld.param.u64 %rd1, [mix_param_0];
    ld.param.v2.u32 {%r1, %r2}, [mix_param_1];
    ld.param.u64 %rd2, [mix_param_1+8];
    // A value that the nested calls must not change.
    st.u32 [%SP], %r2;
    {
    .param .b32 param0;
    st.param.b32 [param0], %r1;
    .param .b32 retval0;
    call (retval0), fib, (param0);
    ld.param.b32 %r3, [retval0];
    }
    ld.u32 %r4, [%rd1];
    add.u32 %r4, %r4, %r3;
    st.u32 [%rd1], %r4;
    ld.local.u32 %r5, [%SPL];
    st.param.v2.b32 [func_retval0+0], {%r4, %r5};
    st.param.b64 [func_retval0+8], %rd2;
    ret;
}

.visible .entry sum_of(.param .u64 out, .param .u32 rounds)
{
    .local .align 8 .b8 __local_depot0[8];
    .reg .pred %p<3>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    .reg .b64 %SP, %SPL;
    mov.u64 %SPL, __local_depot0;
    cvta.local.u64 %SP, %SPL;
    mov.u32 %r1, %tid.x;
    st.u32 [%SP], 1000;
    mov.u32 %r2, 0;
    mov.u64 %rd3, 0x100000007;
$L_loop:
    ld.param.u32 %r3, [rounds];
    setp.ge.u32 %p1, %r2, %r3;
    @%p1 bra $L_done;
    // Odd threads do not call.
    and.b32 %r4, %r1, 1;
    setp.eq.u32 %p2, %r4, 0;
    add.u32 %r5, %r1, %r2;
    {
    .param .b64 param0;
    st.param.b64 [param0], %SP;
    .param .align 8 .b8 param1[16];
    st.param.v2.b32 [param1], {%r5, %r2};
    st.param.b64 [param1+8], %rd3;
    .param .align 8 .b8 retval0[16];
    @%p2 call.uni (retval0), mix, (param0, param1);
    ld.param.v2.b32 {%r6, %r7}, [retval0];
    ld.param.b64 %rd4, [retval0+8];
    }
    add.u32 %r2, %r2, 1;
    bra $L_loop;
$L_done:
    ld.param.u64 %rd1, [out];
    mul.wide.u32 %rd2, %r1, 16;
    add.s64 %rd1, %rd1, %rd2;
    { .param .b32 unused; st.param.b32 [unused], %r1; }
    ld.local.u32 %r8, [__local_depot0];
    st.global.u32 [%rd1], %r8;
    @!%p2 bra $L_end;
    st.global.v2.u32 [%rd1+0], {%r8, %r7};
    st.global.u64 [%rd1+8], %rd4;
$L_end:
    ret;
}
";

fn fib(n: u32) -> u32 {
    if n < 2 { n } else { fib(n - 1) + fib(n - 2) }
}

#[test]
fn functions_call_one_another_and_themselves() {
    start(0);
    let out = upload(&[0_u32; 4 * 14]);
    assert_eq!(run(function(NESTED, "sum_of"), 1, 14, 0, &[out, 3]), 0);
    for (thread, words) in (0_u32..).zip(download::<[u32; 4]>(out, 14)) {
        let sum = |thread| 1000 + (0..3).map(|round| fib(thread + round)).sum::<u32>();
        let expected = match thread % 2 {
            0 => [sum(thread), 2, 7, 1],
            _ => [1000, 0, 0, 0],
        };
        assert_eq!(words, expected, "thread {thread}");
    }
}

/// Parameters in registers and numbers as arguments, which programmers write by hand. The function waits for
/// all threads of the block.
const BY_HAND: &str = "
.version 7.0
.target sm_70
.address_size 64
.shared .align 4 .b8 words[256];
.func (.reg .b32 sum, .reg .b64 wide) exchange(.reg .b32 thread, .reg .b32 by, .param .b16 add)
{
    .reg .b32 %r<5>;
    .reg .b64 %rd<3>;
    mov.u64 %rd1, words;
    mad.wide.u32 %rd1, thread, 4, %rd1;
    st.shared.u32 [%rd1], thread;
    bar.sync 0;
    xor.b32 %r1, thread, by;
    mov.u64 %rd1, words;
    mad.wide.u32 %rd1, %r1, 4, %rd1;
    ld.shared.u32 sum, [%rd1];
    ld.param.u16 %r2, [add];
    add.u32 sum, sum, %r2;
    cvt.u64.u32 wide, thread;
    shl.b64 wide, wide, 40;
}
.func ends(.reg .b32 thread)
{
    .reg .pred %p;
    setp.eq.u32 %p, thread, 5;
    @%p exit;
    @!%p ret;
    trap;
}
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r<5>;
    .reg .b64 %rd<5>;
    mov.u32 %r1, %tid.x;
    call (%r2, %rd3), exchange, (%r1, 3, 70000);
    call ends, (%r1);
    ld.param.u64 %rd1, [out];
    mad.wide.u32 %rd1, %r1, 16, %rd1;
    st.global.u32 [%rd1], %r2;
    st.global.u64 [%rd1+8], %rd3;
}
";

#[test]
fn registers_and_numbers_are_passed() {
    start(0);
    let out = upload(&[0_u64; 2 * 64]);
    assert_eq!(run(function(BY_HAND, "k"), 1, 64, 0, &[out]), 0);
    for (thread, words) in (0_u64..).zip(download::<[u64; 2]>(out, 64)) {
        let expected = if thread == 5 { [0, 0] } else { [(thread ^ 3) + 70000 % 65536, thread << 40] };
        assert_eq!(words, expected, "thread {thread}");
    }
}

/// Calls itself `n` times, each time with `SIZE` bytes of variables. The kernel calls it three times.
const DEEP: &str = "
.version 7.0
.target sm_70
.address_size 64
.func down(.param .b32 n)
{
    .local .align 8 .b8 depot[SIZE];
    .reg .pred %p;
    .reg .b32 %n;
    ld.param.u32 %n, [n];
    setp.eq.u32 %p, %n, 0;
    @%p ret;
    sub.u32 %n, %n, 1;
    { .param .b32 next; st.param.b32 [next], %n; call down, (next); }
    ret;
}
.visible .entry k(.param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %n, %round;
    ld.param.u32 %n, [n];
    mov.u32 %round, 0;
again:
    call down, (%n);
    add.u32 %round, %round, 1;
    setp.lt.u32 %p, %round, 3;
    @%p bra again;
    ret;
}
";

/// The driver reports an overflow of the stack, which ends the context.
#[test]
fn recursion_is_bounded() {
    for (bytes, deepest) in [("8", 255), ("1024", 63)] {
        let text = DEEP.replace("SIZE", bytes);
        for (depth, code) in [(0, 0), (deepest, 0), (deepest + 1, 714), (u64::from(u32::MAX), 714)] {
            start(0);
            assert_eq!(run(function(&text, "k"), 1, 2, 0, &[depth]), code, "{depth} with {bytes} bytes");
        }
    }
}

/// Takes an element of a parameter, by its address, and asserts that it is below a limit.
const ASSERTION: &str = "
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e) .noreturn;
.visible .entry k(.param .u64 to, .param .align 4 .b8 array[16], .param .u32 limit)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .b64 %rd<5>;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd1, %r1, 4;
    mov.b64 %rd2, array;
    add.s64 %rd3, %rd2, %rd1;
    ld.param.u32 %r2, [%rd3];
    ld.param.u32 %r3, [limit];
    setp.lt.u32 %p, %r2, %r3;
    @%p bra right;
    {
        .param .b64 p0;
        .param .b32 p1;
        call.uni __assertfail, (p0, p0, p1, p0, p0);
    }
right:
    ld.param.u64 %rd4, [to];
    add.s64 %rd4, %rd4, %rd1;
    st.global.u32 [%rd4], %r2;
    ret;
}
";

#[test]
fn a_failed_assertion_ends_the_context() {
    for (limit, code) in [(41, 0), (40, 710)] {
        start(0);
        let to = upload(&[0_u32; 4]);
        let (array, limit) = ([10_u32, 20, 30, 40], limit);
        let mut parameters =
            [(&raw const to).cast(), (&raw const array).cast(), (&raw const limit).cast::<c_void>()];
        let kernel = function(&format!("{HEAD}{ASSERTION}"), "k");
        let stream = stream();
        let parameters = parameters.as_mut_ptr().cast::<*mut c_void>();
        assert_eq!(cuLaunchKernel(kernel, 1, 1, 1, 4, 1, 1, 0, stream, parameters, ptr::null_mut()), 0);
        assert_eq!(cuStreamSynchronize(stream), code);
        if code == 0 {
            assert_eq!(download::<u32>(to, 4), array);
        }
    }
}

#[test]
fn calls_that_cannot_run_name_the_line() {
    start(0);
    let text = |functions: &str, call: &str| {
        format!(
            "{HEAD}{functions}\n.visible .entry k()\n{{\n.reg .b32 %r<3>;\n.reg .b64 %rd1;\n.param .b32 p;\n.param .b64 q;\n{call}\nret;\n}}\n"
        )
    };
    let f = ".func (.param .b32 r) f(.param .b32 a) { ret; }";
    for (functions, call, code, says) in [
        (f, "call f, (p);", 218, "line 11: the function `f` has 1 results, but the call has 0"),
        (f, "call (p), f;", 218, "line 11: the function `f` has 1 parameters, but the call has 0"),
        (f, "call (p), f, (q);", 218, "line 11: a call of `f` with parameters of another length"),
        (f, "call (q), f, (p);", 218, "line 11: a call of `f` with results of another length"),
        (f, "call (3), f, (p);", 218, "line 11: a call of `f` with results of another length"),
        (f, "call (p), f, (other);", 218, "line 11: there is no `other`"),
        (f, "call (p), g, (p);", 218, "line 11: there is no function `g`"),
        (f, "call (p), %rd1, (p), f;", 801, "line 11: the stand-in does not support calls by address"),
        (f, "call.other f;", 801, "`call.other`"),
        (f, "{ .param .b32 inner; } call (p), f, (inner);", 218, "line 11: there is no `inner`"),
        (f, "st.param.b32 [p+4], %r1; ld.param.b32 %r1, [none];", 218, "line 11: there is no `none`"),
        (
            ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);",
            "call (p), vprintf, (q, q);",
            801,
            "line 11: the stand-in does not support `vprintf`, a function of another module",
        ),
        (".func f() { ret; } .func f() { ret; }", "", 218, "line 4: the function `f` occurs twice"),
        (
            ".func f() { .shared .b32 s; ret; }",
            "",
            801,
            "line 4: the stand-in does not support shared variables",
        ),
        (
            ".func f() .abi_preserve 3 { ret; }",
            "",
            801,
            "line 4: the stand-in does not support `.abi_preserve`",
        ),
        (".func f(.param .b8 a[5000]) { ret; }", "", 218, "line 4: the parameters have more than 4096 bytes"),
        (".func f(.reg .pred a) { ret; }", "", 801, "line 4: the stand-in does not support predicates"),
        (".func f() { call g; }", "", 218, "line 4: there is no function `g`"),
        (".func f() { add.sat.s32 ", "", 801, "line 4: the stand-in does not support `add.sat.s32`"),
    ] {
        let (found, log) = refused(&text(functions, call));
        assert!(found == code && log.contains(says), "{functions} {call}: {found}, {log}");
    }
    // Functions that no kernel calls, and declarations without a body, are allowed.
    assert_eq!(refused(&text(".extern .func g(.param .b32 a) .noreturn;\n.func f() { ret; }", "")).0, 0);
    // The calls of a kernel use the same memory for their parameters, of which there are 4096 bytes.
    let calls = "{ .param .b8 a[100]; st.param.b32 [a], %r1; }\n".repeat(100);
    assert_eq!(refused(&text("", &calls)).0, 0);
    for end in 0..NESTED.len() {
        let _ = refused(&NESTED[..end]);
    }
}
