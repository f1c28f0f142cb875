//! Kernels in decoded form.

use std::sync::Arc;

/// Meaning of a type's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TypeKind {
    Unsigned,
    Signed,
    Bits,
    Float,
    Predicate,
}

/// A type of PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Type {
    pub(super) kind: TypeKind,
    pub(super) bits: u32,
}

impl Type {
    pub(super) const fn new(kind: TypeKind, bits: u32) -> Self {
        Self { kind, bits }
    }

    /// Returns the bits that a value of this type uses.
    pub(super) const fn mask(self) -> u64 {
        mask(self.bits)
    }

    pub(super) const fn bytes(self) -> u32 {
        self.bits / 8
    }

    pub(super) const fn is_signed(self) -> bool {
        matches!(self.kind, TypeKind::Signed)
    }

    pub(super) const fn is_float(self) -> bool {
        matches!(self.kind, TypeKind::Float)
    }
}

/// Returns a number whose lowest `bits` bits are set.
pub(super) const fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Index of a register of a thread.
pub(super) type Register = u16;

/// A source operand.
#[derive(Clone, Copy, Debug)]
pub(super) enum Src {
    Register(Register),
    Value(u64),
    /// The address of a variable of the thread, by its offset among those of the function.
    Local(u32),
}

/// Registers with the position of the thread and the size of the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    Thread(u8),
    Threads(u8),
    Block(u8),
    Blocks(u8),
    Lane,
    Warp,
    /// Multiprocessor. The stand-in has one.
    Multiprocessor,
    Clock,
}

impl Special {
    /// Returns the width of a special register in bits.
    pub(super) fn bits(name: &str) -> u32 {
        if matches!(name, "%clock64" | "%globaltimer") { 64 } else { 32 }
    }

    /// Returns the register of this name, such as `%tid.x`.
    pub(super) fn named(name: &str) -> Option<Self> {
        let dimension = |rest: &str| match rest {
            ".x" => Some(0),
            ".y" => Some(1),
            ".z" => Some(2),
            _ => None,
        };
        let name = name.strip_prefix('%')?;
        let (name, rest) = name.split_at(name.find('.').unwrap_or(name.len()));
        match (name, rest) {
            ("tid", rest) => dimension(rest).map(Self::Thread),
            ("ntid", rest) => dimension(rest).map(Self::Threads),
            ("ctaid", rest) => dimension(rest).map(Self::Block),
            ("nctaid", rest) => dimension(rest).map(Self::Blocks),
            ("laneid", "") => Some(Self::Lane),
            ("warpid", "") => Some(Self::Warp),
            ("smid", "") => Some(Self::Multiprocessor),
            ("clock" | "clock64" | "globaltimer", "") => Some(Self::Clock),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinaryOp {
    Add,
    Sub,
    MulLow,
    MulHigh,
    /// The result has twice the bits of the operands.
    MulWide,
    Div,
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

impl BinaryOp {
    /// Returns the operation that instructions name so.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "add" => Self::Add,
            "sub" => Self::Sub,
            "min" => Self::Min,
            "max" => Self::Max,
            "and" => Self::And,
            "or" => Self::Or,
            "xor" => Self::Xor,
            "shl" => Self::ShiftLeft,
            "shr" => Self::ShiftRight,
            "div" => Self::Div,
            "rem" => Self::Rem,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnaryOp {
    Neg,
    Abs,
    Not,
    /// `cnot`: 1 for 0, otherwise 0.
    IsZero,
    CountOnes,
    LeadingZeros,
    Reverse,
    Sqrt,
    Reciprocal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// Both operands are numbers.
    Ordered,
    /// One operand is not a number.
    Unordered,
}

/// A comparison, with the result for operands that are not numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compare {
    pub(super) comparison: Comparison,
    pub(super) if_unordered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    /// To the nearest number that the result's type has.
    Nearest,
    NearestInteger,
    Zero,
    Down,
    Up,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// The parameters of a kernel.
    Parameter,
    /// The parameters and results of a function, and those for its calls.
    Argument,
    Global,
    Shared,
    /// The memory of a thread.
    Local,
    /// Shared memory or that of the thread if the address lies in its window, otherwise global memory.
    Generic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtomicOp {
    Binary(BinaryOp),
    Exchange,
    CompareAndSwap,
    /// Wraps to 0 beyond the operand.
    Increment,
    /// Wraps to the operand below 0.
    Decrement,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    pub(super) space: Space,
    pub(super) base: Src,
    pub(super) offset: u64,
}

/// Maximum number of elements of a vector.
pub(super) const VECTOR_MAX: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(super) enum Instruction {
    Move {
        to: Register,
        from: Src,
    },
    ReadSpecial {
        to: Register,
        special: Special,
    },
    Binary {
        op: BinaryOp,
        ty: Type,
        to: Register,
        a: Src,
        b: Src,
    },
    /// A product, and a sum with `c`.
    MultiplyAdd {
        op: BinaryOp,
        ty: Type,
        to: Register,
        a: Src,
        b: Src,
        c: Src,
    },
    Unary {
        op: UnaryOp,
        ty: Type,
        to: Register,
        a: Src,
    },
    /// Extends or cuts the result to the bits of `to_mask`.
    Convert {
        from: Type,
        ty: Type,
        rounding: Rounding,
        to: Register,
        to_mask: u64,
        a: Src,
    },
    Compare {
        compare: Compare,
        ty: Type,
        to: Register,
        not_to: Option<Register>,
        a: Src,
        b: Src,
    },
    /// Combines the predicate of the comparison before it with another one.
    Combine {
        op: BinaryOp,
        to: Register,
        not_to: Option<Register>,
        with: Src,
    },
    Select {
        to: Register,
        a: Src,
        b: Src,
        by: Register,
    },
    /// A shift of two registers of 32 bits.
    Funnel {
        is_left: bool,
        clamps: bool,
        to: Register,
        low: Src,
        high: Src,
        by: Src,
    },
    /// Returns `len` bits from bit `at` on.
    Extract {
        ty: Type,
        to: Register,
        a: Src,
        at: Src,
        len: Src,
    },
    /// Replaces `len` bits of `b` from bit `at` on by the lowest bits of `a`.
    Insert {
        ty: Type,
        to: Register,
        a: Src,
        b: Src,
        at: Src,
        len: Src,
    },
    Load {
        address: Address,
        ty: Type,
        number: u8,
        to: [Register; VECTOR_MAX],
        to_mask: u64,
    },
    Store {
        address: Address,
        ty: Type,
        number: u8,
        from: [Src; VECTOR_MAX],
    },
    Atomic {
        address: Address,
        op: AtomicOp,
        ty: Type,
        to: Option<Register>,
        a: Src,
        b: Src,
    },
    Branch {
        target: u32,
    },
    /// A call, by its index in [`Code::calls`].
    Call {
        call: u32,
    },
    Return,
    Barrier,
    Exit,
    Trap,
    /// The end of a thread whose `assert` has failed.
    Assertion,
}

/// The condition of an instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    pub(super) register: Register,
    pub(super) is_negated: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) guard: Option<Guard>,
    pub(super) instruction: Instruction,
    pub(super) line: u32,
}

/// A place in the parameter memory of a function, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) offset: u32,
    pub(super) len: u32,
}

/// The caller's side of a parameter or a result.
#[derive(Clone, Copy, Debug)]
pub(super) enum CallTarget {
    Argument(Place),
    Register(Register),
    Value(u64),
}

/// A call: the function's index in the module, and both sides of its parameters and results.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) function: u32,
    pub(super) results: Vec<(CallTarget, Place)>,
    pub(super) arguments: Vec<(CallTarget, Place)>,
}

/// The code of a kernel or a function.
#[derive(Debug, Default)]
pub(super) struct Code {
    pub(super) steps: Vec<Step>,
    pub(super) calls: Vec<Call>,
    pub(super) registers: u16,
    /// Bytes of the variables of a thread, and their alignment.
    pub(super) local: u32,
    pub(super) local_align: u32,
    /// Bytes of the parameters and results: its own, if it is a function, and those for its calls.
    pub(super) arguments: u32,
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Offset among the parameters, in bytes.
    pub offset: usize,
    /// Length, in bytes.
    pub len: usize,
}

/// A kernel.
#[derive(Debug)]
pub struct Kernel {
    /// Name of the kernel's entry.
    pub name: String,
    /// Parameters, by rising offsets.
    pub parameters: Vec<Parameter>,
    /// Bytes of shared memory that the kernel declares.
    pub shared: u32,
    /// Bytes of memory that the kernel declares for each thread.
    pub local: u32,
    /// Maximum number of threads of a block.
    pub threads_max: u32,
    /// Number of threads that a block must have, if the kernel requires one.
    pub threads_required: Option<u32>,
    pub(super) code: Code,
    /// The functions of the module.
    pub(super) functions: Arc<[Code]>,
}

impl Kernel {
    /// Returns the length of all parameters, in bytes.
    pub fn parameters_len(&self) -> usize {
        self.parameters.last().map_or(0, |last| last.offset + last.len)
    }

    /// Returns the number of registers of a thread.
    pub const fn register_count(&self) -> u16 {
        self.code.registers
    }

    /// Returns the number of registers that the kernel and the functions which it may call need at a time.
    pub(super) fn frame_registers(&self) -> u16 {
        let functions = if self.code.calls.is_empty() { &[] } else { &*self.functions };
        functions.iter().map(|code| code.registers).fold(self.code.registers, u16::max)
    }
}
