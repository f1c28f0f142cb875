//! Tests of modules and kernels: arithmetic against Rust's, threads that share memory, the protection of
//! memory, errors of texts and launches, and times.
#![expect(unsafe_code, reason = "calls the stand-in as C does")]
#![expect(clippy::too_many_arguments, reason = "as C's")]

#[macro_use]
#[path = "../declare/mod.rs"]
mod declare;

/// Compares an instruction's results on all pairs with those of an oracle.
macro_rules! check {
    ($pairs:expr, $op:expr, $ty:ty => $out:ty, $name:expr, $result:expr, |$a:ident, $b:ident| $oracle:expr) => {{
        let found = apply($op, $name, $result, $pairs);
        for ((x, y), found) in $pairs.iter().zip(found) {
            let ($a, $b) = (*x as $ty, *y as $ty);
            let expected: $out = $oracle;
            assert_eq!(found as $out, expected, "{} on {:?}, {:?}", $op, $a, $b);
        }
    }};
}

mod functions;
mod occupancy;
mod refusals;
mod variables;

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr;

declare! {
    fn cuInit(flags: c_uint);
    fn cuCtxCreate_v2(context: *mut usize, flags: c_uint, device: c_int);
    fn cuCtxSetCurrent(context: usize);
    fn cuCtxEnablePeerAccess(peer: usize, flags: c_uint);
    fn cuStreamCreate(stream: *mut usize, flags: c_uint);
    fn cuStreamSynchronize(stream: usize);
    fn cuEventCreate(event: *mut usize, flags: c_uint);
    fn cuEventRecord(event: usize, stream: usize);
    fn cuEventElapsedTime(milliseconds: *mut f32, from: usize, to: usize);
    fn cuMemHostAlloc(addr: *mut u64, len: usize, flags: c_uint);
    fn cuMemHostRegister_v2(addr: u64, len: usize, flags: c_uint);
    fn cuMemAlloc_v2(addr: *mut u64, len: usize);
    fn cuMemFree_v2(addr: u64);
    fn cuMemcpy(dst: u64, src: u64, len: usize);
    fn cuModuleLoadData(module: *mut usize, image: *const c_void);
    fn cuModuleLoadDataEx(module: *mut usize, image: *const c_void, count: c_uint, options: *mut c_int, values: *mut u64);
    fn cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char);
    fn cuModuleUnload(module: usize);
    fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: usize);
    fn cuFuncSetAttribute(function: usize, attribute: c_int, value: c_int);
    fn cuLaunchKernel(
        function: usize, x: c_uint, y: c_uint, z: c_uint, threads_x: c_uint, threads_y: c_uint, threads_z: c_uint,
        shared: c_uint, stream: usize, parameters: *mut *mut c_void, extra: *mut u64,
    );
    fn cuLaunchKernelEx(config: *const LaunchConfig, function: usize, parameters: *mut *mut c_void, extra: *mut u64);
}

/// `CUlaunchConfig`.
#[repr(C)]
struct LaunchConfig {
    blocks: [c_uint; 3],
    threads: [c_uint; 3],
    shared: c_uint,
    stream: usize,
    attributes: usize,
    number: c_uint,
}

/// Two ideal GPUs, and one with published times.
const GPUS: &str = "memory = '64M'\n[[gpu]]\n[[gpu]]\n[[gpu]]\nprofile = 'hopper'\n";

/// Makes a context of its own on a GPU, because an illegal access ends the context.
fn start(gpu: c_int) -> usize {
    declare::take_turn();
    cuda_emu::use_config(GPUS).expect("a valid configuration");
    assert_eq!(cuInit(0), 0);
    let mut context = 0;
    assert_eq!(cuCtxCreate_v2(&raw mut context, 0, gpu), 0);
    context
}

fn stream() -> usize {
    let mut stream = 0;
    assert_eq!(cuStreamCreate(&raw mut stream, 1), 0);
    stream
}

fn load(text: &str) -> Result<usize, c_int> {
    let (text, mut module) = (CString::new(text).expect("no NUL"), 0);
    match cuModuleLoadData(&raw mut module, text.as_ptr().cast()) {
        0 => Ok(module),
        code => Err(code),
    }
}

fn function(text: &str, name: &str) -> usize {
    let (name, mut function) = (CString::new(name).expect("no NUL"), 0);
    let module = load(text).expect("it loads");
    assert_eq!(cuModuleGetFunction(&raw mut function, module, name.as_ptr()), 0);
    function
}

/// Device memory with these bytes.
fn upload<T: Copy>(values: &[T]) -> u64 {
    let (mut addr, len) = (0, size_of_val(values));
    assert_eq!(cuMemAlloc_v2(&raw mut addr, len), 0);
    assert_eq!(cuMemcpy(addr, values.as_ptr().expose_provenance() as u64, len), 0);
    addr
}

fn download<T: Copy + Default>(addr: u64, number: usize) -> Vec<T> {
    let mut values = vec![T::default(); number];
    let len = size_of_val(&values[..]);
    assert_eq!(cuMemcpy(values.as_mut_ptr().expose_provenance() as u64, addr, len), 0);
    values
}

/// Launches a kernel with these parameters, and waits for its end. Parameters of 4 bytes are their lower
/// half.
fn run(function: usize, blocks: u32, threads: u32, shared: u32, parameters: &[u64]) -> c_int {
    let mut values = parameters.to_vec();
    let mut pointers: Vec<*mut c_void> = values.iter_mut().map(|value| ptr::from_mut(value).cast()).collect();
    let stream = stream();
    let launched = cuLaunchKernel(
        function,
        blocks,
        1,
        1,
        threads,
        1,
        1,
        shared,
        stream,
        pointers.as_mut_ptr(),
        ptr::null_mut(),
    );
    if launched != 0 { launched } else { cuStreamSynchronize(stream) }
}

const HEAD: &str = ".version 7.0\n.target sm_70\n.address_size 64\n";

/// A kernel whose thread `i` applies `body` to the 16 bytes at `in + 16 * i` and stores 8 bytes at `out + 8 *
/// i`.
fn for_each(registers: &str, body: &str) -> String {
    format!(
        "{HEAD}
.visible .entry each(.param .u64 in, .param .u64 out, .param .u32 number)
{{
    .reg .pred %p<4>;
    .reg .b32 %i, %n;
    .reg .b64 %in, %out;
    {registers}
    ld.param.u64 %in, [in];
    ld.param.u64 %out, [out];
    ld.param.u32 %n, [number];
    mov.u32 %i, %ctaid.x;
    mad.lo.u32 %i, %i, 64, 0;
    {{ .reg .b32 %t; mov.u32 %t, %tid.x; add.u32 %i, %i, %t; }}
    setp.ge.u32 %p0, %i, %n;
    @%p0 bra $end;
    mad.wide.u32 %in, %i, 16, %in;
    mad.wide.u32 %out, %i, 8, %out;
    {body}
$end:
    ret;
}}"
    )
}

/// Pairs of numbers: all pairs of odd ones, and random ones.
fn pairs() -> Vec<(u64, u64)> {
    let odd = [
        0,
        1,
        2,
        31,
        32,
        33,
        63,
        64,
        0x7f,
        0x80,
        0xff,
        0x7fff,
        0x8000,
        0xffff,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        0x1_0000_0000,
        i64::MAX as u64,
        1 << 63,
        u64::MAX - 1,
        u64::MAX,
    ];
    let mut found: Vec<_> = odd.iter().flat_map(|a| odd.iter().map(|b| (*a, *b))).collect();
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state ^ state >> 29
    };
    found.extend((0..600).map(|_| (next(), next() >> (next() % 60))));
    found
}

/// Runs `op` with two operands of a type and a result of another type on all pairs.
fn apply(op: &str, ty: &str, result: &str, pairs: &[(u64, u64)]) -> Vec<u64> {
    let bits: usize = ty[1..].parse().expect("a number of bits");
    let register =
        |name: &str, ty: &str| format!(".reg .{} %{name};\n", if ty.ends_with('8') { "b16" } else { ty });
    let registers = [register("a", ty), register("b", ty), register("d", result)].concat();
    let body = format!(
        "ld.global.{ty} %a, [%in];\nld.global.{ty} %b, [%in+8];\n{op};\nst.global.b{} [%out], %d;\n",
        &result[1..]
    );
    let kernel = function(&for_each(&registers, &body), "each");
    let input = upload(pairs);
    let output = upload(&vec![0_u64; pairs.len()]);
    let blocks = pairs.len().div_ceil(64) as u32;
    assert_eq!(run(kernel, blocks, 64, 0, &[input, output, pairs.len() as u64]), 0, "{op} {ty} {bits}");
    download(output, pairs.len())
}

#[test]
fn arithmetic_is_that_of_rust() {
    start(0);
    let pairs = &pairs();
    macro_rules! integers {
        ($(($ty:ty, $name:literal, $bits:literal)),*) => {$(
            check!(pairs, concat!("add.", $name, " %d, %a, %b"), $ty => $ty, $name, $name, |a, b| a.wrapping_add(b));
            check!(pairs, concat!("sub.", $name, " %d, %a, %b"), $ty => $ty, $name, $name, |a, b| a.wrapping_sub(b));
            check!(pairs, concat!("mul.lo.", $name, " %d, %a, %b"), $ty => $ty, $name, $name, |a, b| a.wrapping_mul(b));
            check!(pairs, concat!("mul.hi.", $name, " %d, %a, %b"), $ty => $ty, $name, $name,
                |a, b| ((i128::from(a) * i128::from(b)) >> $bits) as $ty);
            check!(pairs, concat!("min.", $name, " %d, %a, %b"), $ty => $ty, $name, $name, |a, b| a.min(b));
            check!(pairs, concat!("max.", $name, " %d, %a, %b"), $ty => $ty, $name, $name, |a, b| a.max(b));
            check!(pairs, concat!("mad.lo.", $name, " %d, %a, %b, %a"), $ty => $ty, $name, $name,
                |a, b| a.wrapping_mul(b).wrapping_add(a));
            // A division by 0 has no defined result.
            check!(pairs, concat!("setp.eq.", $name, " %p1, %b, 0;\n@%p1 mov.", $name, " %b, 1;\ndiv.", $name, " %d, %a, %b"),
                $ty => $ty, $name, $name, |a, b| a.wrapping_div(b.max(b | <$ty>::from(b == 0))));
            check!(pairs, concat!("setp.eq.", $name, " %p1, %b, 0;\n@%p1 mov.", $name, " %b, 1;\nrem.", $name, " %d, %a, %b"),
                $ty => $ty, $name, $name, |a, b| a.wrapping_rem(b | <$ty>::from(b == 0)));
            check!(pairs, concat!("setp.lt.", $name, " %p1|%p2, %a, %b;\nselp.", $name, " %d, 1, 2, %p1;\n@%p2 add.", $name, " %d, %d, 4"),
                $ty => $ty, $name, $name, |a, b| if a < b { 1 } else { 6 });
            check!(pairs, concat!("setp.ge.", $name, " %p1, %a, %b;\nsetp.ne.and.", $name, " %p2, %a, 1, %p1;\nselp.", $name, " %d, 1, 0, %p2"),
                $ty => $ty, $name, $name, |a, b| <$ty>::from(a >= b && a != 1));
            check!(pairs, concat!(".reg .b32 %c;\ncvt.u32.", $name, " %c, %b;\nshr.", $name, " %d, %a, %c"), $ty => $ty, $name, $name,
                |a, b| { let by = b as u32; if by >= $bits { a >> ($bits - 1) >> 1 % 2 } else { a >> by } });
        )*};
    }
    integers!((u32, "u32", 32), (s32, "s32", 32), (u16, "u16", 16), (s16, "s16", 16));
    check!(pairs, "add.u64 %d, %a, %b", u64 => u64, "u64", "u64", |a, b| a.wrapping_add(b));
    check!(pairs, "mul.hi.s64 %d, %a, %b", i64 => i64, "s64", "s64", |a, b| ((i128::from(a) * i128::from(b)) >> 64) as i64);
    check!(pairs, "mul.hi.u64 %d, %a, %b", u64 => u64, "u64", "u64", |a, b| ((u128::from(a) * u128::from(b)) >> 64) as u64);
    check!(pairs, "mul.wide.u32 %d, %a, %b", u32 => u64, "u32", "u64", |a, b| u64::from(a) * u64::from(b));
    check!(pairs, "mul.wide.s32 %d, %a, %b", i32 => i64, "s32", "s64", |a, b| i64::from(a) * i64::from(b));
    check!(pairs, "xor.b32 %d, %a, %b", u32 => u32, "b32", "b32", |a, b| a ^ b);
    check!(pairs, "not.b64 %d, %a;\nor.b64 %d, %d, %b", u64 => u64, "b64", "b64", |a, b| !a | b);
    check!(pairs, "neg.s64 %d, %a;\nand.b64 %d, %d, %b", i64 => i64, "s64", "s64", |a, b| a.wrapping_neg() & b);
    check!(pairs, "abs.s32 %d, %a", i32 => i32, "s32", "s32", |a, b| { let _ = b; a.wrapping_abs() });
    check!(pairs, "popc.b64 %d, %a", u64 => u32, "b64", "u32", |a, b| { let _ = b; a.count_ones() });
    check!(pairs, "clz.b32 %d, %a", u32 => u32, "b32", "u32", |a, b| { let _ = b; a.leading_zeros() });
    check!(pairs, "brev.b32 %d, %a", u32 => u32, "b32", "b32", |a, b| { let _ = b; a.reverse_bits() });
    check!(pairs, ".reg .b32 %x, %y;\nmov.b64 {%x, %y}, %a;\nmov.b64 %d, {%y, %x}", u64 => u64, "b64", "b64",
        |a, b| { let _ = b; a.rotate_left(32) });
    check!(pairs, ".reg .b16 %x;\nmov.b32 {_, %x}, %a;\nmov.b32 %d, {%x, 7}", u32 => u32, "b32", "b32",
        |a, b| { let _ = b; a >> 16 | 7 << 16 });
    check!(pairs, ".reg .b16 %w, %x, %y, %z;\nmov.b64 {%w, %x, %y, %z}, %a;\nmov.b64 %d, {%z, %y, %x, %w}", u64 => u64, "b64", "b64",
        |a, b| { let _ = b; (0..4).fold(0, |all, at| all << 16 | a >> (16 * at) & 0xffff) });
    check!(pairs, "shf.l.wrap.b32 %d, %a, %b, %b", u32 => u32, "b32", "b32",
        |a, b| ((u64::from(b) << 32 | u64::from(a)) << (b & 31) >> 32) as u32);
    check!(pairs, "cvt.s64.s16 %d, %a", i16 => i64, "s16", "s64", |a, b| { let _ = b; a.into() });
    check!(pairs, "cvt.s32.s8 %d, %a", i8 => i32, "s8", "s32", |a, b| { let _ = b; a.into() });
    check!(pairs, "cvt.u16.u64 %d, %a", u64 => u16, "u64", "u16", |a, b| { let _ = b; a as u16 });
    check!(pairs, "cvt.rn.f32.s32 %d, %a", i32 => u32, "s32", "f32", |a, b| { let _ = b; (a as f32).to_bits() });
    check!(pairs, "cvt.rzi.s32.f32 %d, %a", u32 => i32, "f32", "s32",
        |a, b| { let _ = b; f32::from_bits(a) as i32 });
    check!(pairs, "cvt.rn.f64.u64 %d, %a", u64 => u64, "u64", "f64", |a, b| { let _ = b; (a as f64).to_bits() });
    let bits = |value: f32| if value.is_nan() { 0 } else { value.to_bits() };
    let number = ";\nsetp.nan.f32 %p3, %d, %d;\n@%p3 mov.f32 %d, 0f00000000";
    check!(pairs, &format!("add.rn.f32 %d, %a, %b{number}"), u32 => u32, "f32", "f32", |a, b| bits(f32::from_bits(a) + f32::from_bits(b)));
    check!(pairs, &format!("fma.rn.f32 %d, %a, %b, %a{number}"), u32 => u32, "f32", "f32",
        |a, b| bits(f32::from_bits(a).mul_add(f32::from_bits(b), f32::from_bits(a))));
    check!(pairs, "setp.ltu.f32 %p1, %a, %b;\nselp.b32 %d, 1, 0, %p1", u32 => u32, "f32", "b32",
        |a, b| u32::from(f32::from_bits(a).partial_cmp(&f32::from_bits(b)).is_none_or(std::cmp::Ordering::is_lt)));
}

#[expect(non_camel_case_types, reason = "PTX's names of Rust's types")]
type s32 = i32;
#[expect(non_camel_case_types, reason = "PTX's names of Rust's types")]
type s16 = i16;

/// Sums 128 words for each block in shared memory, adds the sums to a total, and appends each block's number.
const SUM: &str = "
.version 7.0
.target sm_70
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
/* A comment
   of two lines. */
.visible .entry sum(
    .param .u64 .ptr .global .align 4 words, // a list
    .param .u64 total
)
.maxntid 128, 1, 1
{
    .reg .pred %p, %q;
    .reg .b32 %r<12>;
    .reg .b64 %rd<10>;
    .shared .align 4 .b8 sums[512];
    .loc 1 2 3
    ld.param.u64 %rd1, [words];
    ld.param.u64 %rd2, [total];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mad.lo.s32 %r4, %r2, %r3, %r1;
    mul.wide.u32 %rd3, %r4, 4;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.nc.L1::no_allocate.u32 %r5, [%rd4];
    // One half of the block uses the generic address.
    mov.u64 %rd5, sums;
    mul.wide.u32 %rd6, %r1, 4;
    add.s64 %rd7, %rd5, %rd6;
    st.shared.u32 [%rd7], %r5;
    cvta.shared.u64 %rd8, %rd7;
    mov.u32 %r6, 64;
$loop:
    bar.sync 0;
    setp.ge.u32 %p, %r1, %r6;
    @%p bra $skip;
    ld.u32 %r7, [%rd8];
    mul.wide.u32 %rd9, %r6, 4;
    add.s64 %rd9, %rd9, %rd7;
    ld.shared.u32 %r8, [%rd9+0];
    add.u32 %r7, %r7, %r8;
    st.u32 [%rd8], %r7;
$skip:
    shr.u32 %r6, %r6, 1;
    setp.ne.s32 %q, %r6, 0;
    @%q bra.uni $loop;
    setp.ne.s32 %p, %r1, 0;
    @%p bra $end;
    ld.shared.u32 %r9, [sums];
    red.global.add.u32 [%rd2], %r9;
    atom.global.inc.u32 %r10, [%rd2+4], 1000;
    mul.wide.u32 %rd9, %r10, 4;
    add.s64 %rd9, %rd2, %rd9;
    st.global.u32 [%rd9+8], %r2;
    st.shared.u32 [dynamic], %r2;
    membar.gl;
$end:
    ret;
}
";

#[test]
fn blocks_share_memory_and_wait_at_barriers() {
    start(0);
    let words: Vec<u32> = (0..1280).map(|i| i * i).collect();
    let (input, total) = (upload(&words), upload(&[0_u32; 12]));
    let kernel = function(SUM, "sum");
    assert_eq!(run(kernel, 10, 128, 64, &[input, total]), 0);
    let found = download::<u32>(total, 12);
    assert_eq!(found[0], words.iter().sum::<u32>());
    let mut blocks = found[2..].to_vec();
    blocks.sort_unstable();
    assert_eq!((found[1], blocks), (10, (0..10).collect()));
    let mut value = 0;
    for (attribute, expected) in [(0, 128), (1, 512), (3, 0), (8, (48 << 10) - 512)] {
        assert_eq!(cuFuncGetAttribute(&raw mut value, attribute, kernel), 0);
        assert_eq!(value, expected, "attribute {attribute}");
    }
    assert_eq!(cuFuncSetAttribute(kernel, 8, 32), 0);
    assert_eq!(run(kernel, 1, 128, 64, &[input, total]), 1, "more shared memory than the function has");
    assert_eq!(run(kernel, 1, 129, 0, &[input, total]), 701, "more threads than the kernel permits");
    assert_eq!(run(kernel, 0, 128, 0, &[input, total]), 1);
    assert_eq!(run(kernel, 1, 2048, 0, &[input, total]), 1);
    assert_eq!(run(0x1234_5670, 1, 1, 0, &[]), 400);
}

/// Adds two lists of floats, as the usual first example does.
const VECTOR_ADD: &str = "//
.version 8.0
.target sm_52
.address_size 64
	// .globl	_Z9vectorAddPKfS0_Pfi
.visible .entry _Z9vectorAddPKfS0_Pfi(
	.param .u64 _Z9vectorAddPKfS0_Pfi_param_0,
	.param .u64 _Z9vectorAddPKfS0_Pfi_param_1,
	.param .u64 _Z9vectorAddPKfS0_Pfi_param_2,
	.param .u32 _Z9vectorAddPKfS0_Pfi_param_3
)
{
	.reg .pred 	%p<2>;
	.reg .f32 	%f<4>;
	.reg .b32 	%r<6>;
	.reg .b64 	%rd<11>;
	ld.param.u64 	%rd1, [_Z9vectorAddPKfS0_Pfi_param_0];
	ld.param.u64 	%rd2, [_Z9vectorAddPKfS0_Pfi_param_1];
	ld.param.u64 	%rd3, [_Z9vectorAddPKfS0_Pfi_param_2];
	ld.param.u32 	%r2, [_Z9vectorAddPKfS0_Pfi_param_3];
	mov.u32 	%r3, %ntid.x;
	mov.u32 	%r4, %ctaid.x;
	mov.u32 	%r5, %tid.x;
	mad.lo.s32 	%r1, %r3, %r4, %r5;
	setp.ge.s32 	%p1, %r1, %r2;
	@%p1 bra 	$L__BB0_2;
	cvta.to.global.u64 	%rd4, %rd1;
	mul.wide.s32 	%rd5, %r1, 4;
	add.s64 	%rd6, %rd4, %rd5;
	cvta.to.global.u64 	%rd7, %rd2;
	add.s64 	%rd8, %rd7, %rd5;
	ld.global.f32 	%f1, [%rd8];
	ld.global.f32 	%f2, [%rd6];
	add.f32 	%f3, %f2, %f1;
	cvta.to.global.u64 	%rd9, %rd3;
	add.s64 	%rd10, %rd9, %rd5;
	st.global.f32 	[%rd10], %f3;
$L__BB0_2:
	ret;
}
";

#[test]
fn vectors_are_added_by_every_way_to_launch() {
    start(1);
    let a: Vec<f32> = (0..1000_u16).map(|i| f32::from(i) * 0.37).collect();
    let b: Vec<f32> = (0..1000_u16).map(|i| f32::from(i).sqrt()).collect();
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    let kernel = function(VECTOR_ADD, "_Z9vectorAddPKfS0_Pfi");
    let (a, b) = (upload(&a), upload(&b));
    let results = [(); 3].map(|()| upload(&[0_f32; 1000]));
    assert_eq!(run(kernel, 4, 256, 0, &[a, b, results[0], 1000]), 0);
    let stream = stream();
    // A buffer with all parameters.
    let buffer = [a, b, results[1], 1000];
    let len = 28_usize;
    let mut extra = [
        1,
        ptr::from_ref(&buffer).expose_provenance() as u64,
        2,
        ptr::from_ref(&len).expose_provenance() as u64,
        0,
    ];
    let launch =
        |extra: *mut u64| cuLaunchKernel(kernel, 4, 1, 1, 256, 1, 1, 0, stream, ptr::null_mut(), extra);
    assert_eq!(launch(extra.as_mut_ptr()), 0);
    let short = 27_usize;
    extra[3] = ptr::from_ref(&short).expose_provenance() as u64;
    assert_eq!((launch(extra.as_mut_ptr()), launch(ptr::null_mut())), (1, 1), "parameters are missing");
    // A configuration.
    let mut values = [a, b, results[2], 1000];
    let mut pointers = values.each_mut().map(|value| ptr::from_mut(value).cast::<c_void>());
    let mut config =
        LaunchConfig { blocks: [2, 2, 1], threads: [256, 1, 1], shared: 0, stream, attributes: 0, number: 0 };
    assert_eq!(cuLaunchKernelEx(&raw const config, kernel, pointers.as_mut_ptr(), ptr::null_mut()), 0);
    config.blocks = [4, 1, 1];
    assert_eq!(cuLaunchKernelEx(&raw const config, kernel, pointers.as_mut_ptr(), ptr::null_mut()), 0);
    // A cluster of blocks.
    let attribute = [4_u64; 9];
    (config.attributes, config.number) = (ptr::from_ref(&attribute).expose_provenance(), 1);
    assert_eq!(cuLaunchKernelEx(&raw const config, kernel, pointers.as_mut_ptr(), ptr::null_mut()), 801);
    assert_eq!(cuStreamSynchronize(stream), 0);
    for result in results {
        assert_eq!(download::<f32>(result, 1000), expected);
    }
}

#[test]
fn memory_of_a_peer_takes_access() {
    let other = start(1);
    let there = upload(&[0_u32; 4]);
    start(0);
    let kernel = function(refusals::POKE, "poke");
    assert_eq!(cuCtxEnablePeerAccess(other, 0), 0);
    assert_eq!(run(kernel, 1, 1, 0, &[there]), 0);
    start(0);
    let kernel = function(refusals::POKE, "poke");
    assert_eq!(run(kernel, 1, 1, 0, &[there]), 700);
    assert_eq!(cuCtxSetCurrent(other), 0);
    assert_eq!(download::<u32>(there, 1), [7]);
}

#[test]
fn kernels_that_spin_let_other_streams_go_on() {
    let context = start(0);
    let spin = format!(
        "{HEAD}.visible .entry spin(.param .u64 flag)\n{{\n.reg .b64 %at;\n.reg .b32 %v;\n.reg .pred %p;\n\
         ld.param.u64 %at, [flag];\nagain:\nld.volatile.global.u32 %v, [%at];\nsetp.eq.u32 %p, %v, 0;\n@%p bra again;\nret;\n}}\n"
    );
    let (kernel, poke, flag) =
        (function(&spin, "spin"), function(refusals::POKE, "poke"), upload(&[0_u32; 1]));
    let waiting = std::thread::spawn(move || {
        assert_eq!(cuCtxSetCurrent(context), 0);
        run(kernel, 1, 1, 0, &[flag])
    });
    assert_eq!(run(poke, 1, 1, 0, &[flag]), 0);
    assert_eq!(waiting.join().expect("no panic"), 0);
}

#[test]
fn kernels_take_the_time_of_their_bytes() {
    start(2);
    // Each thread loads 4096 words from host memory.
    let body = "
    .reg .b64 %sum, %word;
    .reg .b32 %left;
    mov.u64 %sum, 0;
    mov.u32 %left, 4096;
next:
    ld.global.u64 %word, [%in];
    add.u64 %sum, %sum, %word;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %p1, %left, 0;
    @%p1 bra next;
    st.global.u64 [%out], %sum;";
    let kernel = function(&for_each("", body), "each");
    let (mut pinned, out) = (0, upload(&[0_u64; 32]));
    assert_eq!(cuMemHostAlloc(&raw mut pinned, 4096, 0), 0);
    let (stream, mut events) = (stream(), [0; 2]);
    events.iter_mut().for_each(|event| assert_eq!(cuEventCreate(event, 0), 0));
    let mut values = [pinned, out, 32];
    let mut pointers = values.each_mut().map(|value| ptr::from_mut(value).cast::<c_void>());
    assert_eq!(cuEventRecord(events[0], stream), 0);
    assert_eq!(
        cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, pointers.as_mut_ptr(), ptr::null_mut()),
        0
    );
    assert_eq!(cuEventRecord(events[1], stream), 0);
    assert_eq!(cuStreamSynchronize(stream), 0);
    let mut milliseconds = 0.0;
    assert_eq!(cuEventElapsedTime(&raw mut milliseconds, events[0], events[1]), 0);
    // 1 MiB at 52.8 GB/s takes 19.9 us, and a launch 3.55 us.
    assert!(milliseconds >= 0.023, "{milliseconds} ms");
}
