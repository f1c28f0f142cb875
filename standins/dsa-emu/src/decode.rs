//! Decoder of the instructions that the stand-in executes: stores of 64 bytes, and waits for a store.
//!
//! Source: Intel's "Software Developer's Manual", volume 2, MOVDIR64B, ENQCMD, ENQCMDS, UMONITOR, UMWAIT,
//! TPAUSE and chapter 2.

/// Registers, numbered as in x86-64 instructions: 0 is RAX, 4 is RSP, 15 is R15.
pub(crate) trait Registers {
    /// Returns the value of a general register.
    fn general(&self, number: u8) -> u64;
    /// Returns the address of the instruction.
    fn rip(&self) -> u64;
    /// Returns the base of FS, the segment of thread-local variables.
    fn fs_base(&self) -> u64;
}

/// A store of 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// MOVDIR64B: a posted store. The program cannot see if the device accepted it.
    Movdir64b,
    /// ENQCMD: a store that the device accepts or refuses.
    Enqcmd,
    /// ENQCMDS: the variant of ENQCMD for the kernel.
    Enqcmds,
}

/// The operation of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Stores the 64 bytes at `source` to `destination`.
    Store { store: Store, source: u64, destination: u64 },
    /// UMONITOR: watches the cache line of an address.
    Monitor { address: u64 },
    /// UMWAIT: waits for a store to the watched line, in the state that the register's value names.
    Wait { state: u32 },
    /// TPAUSE: waits for a time, in the state that the register's value names.
    Pause { state: u32 },
}

/// A decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) operation: Operation,
    /// Length of the instruction in bytes.
    pub(crate) len: u8,
}

/// Longest instruction of the processor in bytes.
pub(crate) const LONGEST: usize = 15;

/// Decodes the instruction at the start of `code`. Returns `None` for other or incomplete instructions.
pub(crate) fn decode(code: &[u8], registers: &impl Registers) -> Option<Instruction> {
    let mut rest = code.get(..code.len().min(LONGEST))?.iter().copied();
    let (mut operand_size, mut address_size, mut fs, mut repeat) = (false, false, false, None);
    let mut byte = rest.next()?;
    loop {
        match byte {
            0x66 => operand_size = true,
            0x67 => address_size = true,
            0xf2 | 0xf3 => repeat = Some(byte),
            0x64 => fs = true,
            // These segments have no base.
            0x26 | 0x2e | 0x36 | 0x3e => fs = false,
            // LOCK makes each of these instructions undefined on every processor. The tests use that to cover
            // processors that lack them.
            0xf0 => {}
            _ => break,
        }
        byte = rest.next()?;
    }
    let rex = if byte & 0xf0 == 0x40 { std::mem::replace(&mut byte, rest.next()?) } else { 0 };
    let size = if address_size { u64::from(u32::MAX) } else { u64::MAX };
    // The base of a segment is added after the address is truncated to the address size.
    let base = if fs { registers.fs_base() } else { 0 };
    if byte != 0x0f {
        return None;
    }
    let byte = rest.next()?;
    if byte == 0xae {
        let modrm = rest.next()?;
        // Other values are instructions of other extensions, for example CLWB.
        if modrm >> 3 != 0b11_110 {
            return None;
        }
        let value = registers.general(modrm & 7 | if rex & 1 == 0 { 0 } else { 8 });
        let operation = match repeat {
            Some(0xf3) => Operation::Monitor { address: (value & size).wrapping_add(base) },
            Some(_) => Operation::Wait { state: value as u32 },
            None if operand_size => Operation::Pause { state: value as u32 },
            None => return None,
        };
        return Some(Instruction { operation, len: (code.len().min(LONGEST) - rest.len()) as u8 });
    }
    if [byte, rest.next()?] != [0x38, 0xf8] {
        return None;
    }
    let store = match repeat {
        Some(0xf2) => Store::Enqcmd,
        Some(_) => Store::Enqcmds,
        None if operand_size => Store::Movdir64b,
        None => return None,
    };
    let modrm = rest.next()?;
    let (mode, reg, rm) = (modrm >> 6, modrm >> 3 & 7 | (rex & 4) << 1, modrm & 7);
    let extended = |number: u8, bit: u8| number | if rex & bit == 0 { 0 } else { 8 };
    let mut source = 0_u64;
    let mut displacement_len = match mode {
        0 => 0,
        1 => 1,
        2 => 4,
        _ => return None,
    };
    let mut relative = false;
    if rm == 4 {
        let sib = rest.next()?;
        let index = extended(sib >> 3 & 7, 2);
        if index != 4 {
            source = registers.general(index) << (sib >> 6);
        }
        if sib & 7 == 5 && mode == 0 {
            displacement_len = 4;
        } else {
            source = source.wrapping_add(registers.general(extended(sib & 7, 1)));
        }
    } else if rm == 5 && mode == 0 {
        (relative, displacement_len) = (true, 4);
    } else {
        source = registers.general(extended(rm, 1));
    }
    let mut displacement = [0; 4];
    for byte in &mut displacement[..displacement_len] {
        *byte = rest.next()?;
    }
    let displacement = match displacement_len {
        1 => i64::from(displacement[0].cast_signed()),
        _ => i64::from(i32::from_le_bytes(displacement)),
    };
    let len = code.len().min(LONGEST) - rest.len();
    source = source.wrapping_add_signed(displacement);
    if relative {
        source = source.wrapping_add(registers.rip()).wrapping_add(len as u64);
    }
    let source = (source & size).wrapping_add(base);
    let destination = registers.general(reg) & size;
    Some(Instruction { operation: Operation::Store { store, source, destination }, len: len as u8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Register `n` has the value `(n + 1) << 32 | n << 8`.
    struct Made;

    const fn value(number: u64) -> u64 {
        (number + 1) << 32 | number << 8
    }

    impl Registers for Made {
        fn general(&self, number: u8) -> u64 {
            value(u64::from(number))
        }
        fn rip(&self) -> u64 {
            0x7000_0000_1000
        }
        fn fs_base(&self) -> u64 {
            0x10_0000_0000_0000
        }
    }

    fn check(code: &[u8], operation: Operation) {
        let expected = Instruction { operation, len: code.len() as u8 };
        assert_eq!(decode(code, &Made), Some(expected), "{code:x?}");
        // Bytes after the instruction do not matter, and an incomplete instruction is not decoded.
        let longer: Vec<u8> = code.iter().copied().chain([0xcc; 20]).collect();
        assert_eq!(decode(&longer, &Made), Some(expected), "{code:x?}");
        for len in 0..code.len() {
            assert_eq!(decode(&code[..len], &Made), None, "the first {len} bytes of {code:x?}");
        }
    }

    /// The assembler GNU as generates these bytes for the instructions beside them.
    #[test]
    fn addresses_are_those_of_the_assembler() {
        use Store::{Enqcmd, Enqcmds, Movdir64b};
        let rip = Made.rip();
        for (code, store, destination, source) in [
            // movdir64b (%rdx), %rax
            (&[0x66, 0x0f, 0x38, 0xf8, 0x02][..], Movdir64b, value(0), value(2)),
            // enqcmd (%rdx), %rax; enqcmds (%rdx), %rax
            (&[0xf2, 0x0f, 0x38, 0xf8, 0x02], Enqcmd, value(0), value(2)),
            (&[0xf3, 0x0f, 0x38, 0xf8, 0x02], Enqcmds, value(0), value(2)),
            // movdir64b (%r8), %r15
            (&[0x66, 0x45, 0x0f, 0x38, 0xf8, 0x38], Movdir64b, value(15), value(8)),
            // movdir64b 0x40(%rsp), %r9
            (&[0x66, 0x44, 0x0f, 0x38, 0xf8, 0x4c, 0x24, 0x40], Movdir64b, value(9), value(4) + 0x40),
            // movdir64b -0x100(%r13,%r12,8), %rcx
            (
                &[0x66, 0x43, 0x0f, 0x38, 0xf8, 0x8c, 0xe5, 0x00, 0xff, 0xff, 0xff],
                Movdir64b,
                value(1),
                value(13) + value(12) * 8 - 0x100,
            ),
            // movdir64b (%r12), %rax; movdir64b 0(%r13), %rax
            (&[0x66, 0x41, 0x0f, 0x38, 0xf8, 0x04, 0x24], Movdir64b, value(0), value(12)),
            (&[0x66, 0x41, 0x0f, 0x38, 0xf8, 0x45, 0x00], Movdir64b, value(0), value(13)),
            // enqcmd -0x40(%rip), %rsi
            (&[0xf2, 0x0f, 0x38, 0xf8, 0x35, 0xc0, 0xff, 0xff, 0xff], Enqcmd, value(6), rip + 9 - 0x40),
            // movdir64b 0x1000, %rdi; movdir64b 0x1000(,%rbx,4), %rdi
            (&[0x66, 0x0f, 0x38, 0xf8, 0x3c, 0x25, 0, 0x10, 0, 0], Movdir64b, value(7), 0x1000),
            (
                &[0x66, 0x0f, 0x38, 0xf8, 0x3c, 0x9d, 0, 0x10, 0, 0],
                Movdir64b,
                value(7),
                value(3) * 4 + 0x1000,
            ),
            // addr32 movdir64b -0x10(%edx), %eax, in both orders of the prefixes
            (&[0x67, 0x66, 0x0f, 0x38, 0xf8, 0x42, 0xf0], Movdir64b, 0, 0x1f0),
            (&[0x66, 0x67, 0x0f, 0x38, 0xf8, 0x42, 0xf0], Movdir64b, 0, 0x1f0),
            // movdir64b %fs:(%rdx), %rax
            (&[0x64, 0x66, 0x0f, 0x38, 0xf8, 0x02], Movdir64b, value(0), Made.fs_base() + value(2)),
        ] {
            check(code, Operation::Store { store, source, destination });
        }
    }

    /// The assembler GNU as generates these bytes for the instructions beside them.
    #[test]
    fn waits_have_their_register() {
        let state = |number: u64| value(number) as u32;
        for (code, operation) in [
            // umonitor %rax; umonitor %r14; addr32 umonitor %edx
            (&[0xf3, 0x0f, 0xae, 0xf0][..], Operation::Monitor { address: value(0) }),
            (&[0xf3, 0x41, 0x0f, 0xae, 0xf6], Operation::Monitor { address: value(14) }),
            (&[0x67, 0xf3, 0x0f, 0xae, 0xf2], Operation::Monitor { address: 0x200 }),
            // umwait %ecx; umwait %r9d
            (&[0xf2, 0x0f, 0xae, 0xf1], Operation::Wait { state: state(1) }),
            (&[0xf2, 0x41, 0x0f, 0xae, 0xf1], Operation::Wait { state: state(9) }),
            // tpause %edi; tpause %r8d
            (&[0x66, 0x0f, 0xae, 0xf7], Operation::Pause { state: state(7) }),
            (&[0x66, 0x41, 0x0f, 0xae, 0xf0], Operation::Pause { state: state(8) }),
        ] {
            check(code, operation);
        }
    }

    #[test]
    fn others_are_left_alone() {
        for code in [
            &[0x0f, 0x38, 0xf8, 0x02][..],         // without a prefix
            &[0x66, 0x0f, 0x38, 0xf8, 0xc2],       // a register for the source
            &[0x66, 0x0f, 0x38, 0xf9, 0x02],       // MOVDIRI with a prefix
            &[0x65, 0x66, 0x0f, 0x38, 0xf8, 0x02], // GS, whose base is not known
            &[0x66, 0x0f, 0xae, 0x30],             // CLWB
            &[0x66, 0x0f, 0xae, 0xf8],             // no instruction
            &[0x0f, 0xae, 0xf0],                   // MFENCE
            &[0x66; 20],
            &[0x0f, 0x0b],
            &[],
        ] {
            assert_eq!(decode(code, &Made), None, "{code:x?}");
        }
    }
}
