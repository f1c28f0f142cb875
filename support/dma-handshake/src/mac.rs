//! [`Mac`]: HMAC-SHA-256, implemented without C code, and the derivation of keys with it.

use std::hint::black_box;

#[cfg(feature = "accelerated")]
use accelerated as hmac;
#[cfg(not(feature = "accelerated"))]
use portable as hmac;

/// Length of a MAC in bytes.
pub(crate) const MAC_LEN: usize = 32;

/// A message authentication code. Comparisons take constant time.
#[derive(Clone, Copy, Debug, Eq)]
pub(crate) struct Mac([u8; MAC_LEN]);

impl Mac {
    /// Returns the MAC of the concatenated `parts`. All parts except the last one must have fixed lengths.
    pub(crate) fn new<'a>(key: &[u8], parts: impl IntoIterator<Item = &'a &'a [u8]>) -> Self {
        Self(hmac(key, parts))
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; MAC_LEN] {
        &self.0
    }
}

impl PartialEq for Mac {
    fn eq(&self, other: &Self) -> bool {
        // `black_box` keeps the compiler from ending the comparison at the first difference.
        let bytes = self.0.iter().zip(&other.0);
        bytes.fold(0, |differences, (a, b)| black_box(differences | (a ^ b))) == 0
    }
}

impl PartialEq<[u8; MAC_LEN]> for Mac {
    fn eq(&self, other: &[u8; MAC_LEN]) -> bool {
        *self == Self(*other)
    }
}

impl PartialEq<[u8]> for Mac {
    fn eq(&self, other: &[u8]) -> bool {
        <&[u8; MAC_LEN]>::try_from(other).is_ok_and(|other| self == other)
    }
}

/// Computes the HMAC by instructions that every processor has.
#[cfg(any(test, not(feature = "accelerated")))]
fn portable<'a>(key: &[u8], parts: impl IntoIterator<Item = &'a &'a [u8]>) -> [u8; MAC_LEN] {
    let mut hmac = hmac_sha256::HMAC::new(key);
    for part in parts {
        hmac.update(part);
    }
    hmac.finalize()
}

/// Computes the HMAC by the processor's SHA-256 instructions, if it has them.
#[cfg(any(test, feature = "accelerated"))]
fn accelerated<'a>(key: &[u8], parts: impl IntoIterator<Item = &'a &'a [u8]>) -> [u8; MAC_LEN] {
    use hmac::{Hmac, KeyInit as _, Mac as _};

    let mut hmac = Hmac::<sha2::Sha256>::new_from_slice(key).expect("HMAC accepts keys of any length");
    for part in parts {
        hmac.update(part);
    }
    hmac.finalize().into_bytes().into()
}

/// Derives a key from `secret`, `context` and `parts`. The context must be unique to the key's purpose,
/// and the parts must have fixed lengths. The input includes the context's length, so that two contexts
/// never produce the same input.
pub(crate) fn derive_key(context: &str, secret: &[u8], parts: &[&[u8]]) -> [u8; MAC_LEN] {
    let len = (context.len() as u64).to_le_bytes();
    *Mac::new(secret, [&len[..], context.as_bytes()].iter().chain(parts)).as_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_kinds_of_instructions_give_the_same_mac(
            key in prop::collection::vec(any::<u8>(), 0..150),
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..4),
        ) {
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            prop_assert_eq!(portable(&key, &parts), accelerated(&key, &parts));
        }

        #[test]
        fn macs_that_differ_in_any_bit_are_not_equal(at in 0..MAC_LEN, bit in 0..8) {
            let mac = Mac::new(b"key", []);
            let mut other = mac;
            other.0[at] ^= 1_u8 << bit;
            prop_assert!(mac != other);
        }
    }

    /// RFC 4231, test case 2.
    #[test]
    fn macs_are_hmac_sha_256() {
        let mac = Mac::new(b"Jefe", [&b"what do ya want "[..], b"for nothing?"].iter());
        let hex: String = mac.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        assert_eq!(mac, *mac.as_bytes());
        assert!(mac != mac.as_bytes()[..31]);
    }

    #[test]
    fn each_context_and_part_gives_another_key() {
        let key = derive_key("context", b"secret", &[b"part"]);
        for other in [
            derive_key("con", b"secret", &[b"textpart"]),
            derive_key("context", b"secreu", &[b"part"]),
            derive_key("context", b"secret", &[b"parts"]),
        ] {
            assert_ne!(key, other);
        }
    }
}
