//! [`Mac`]: HMAC-SHA-256, which needs no C compiler, and the keys that are derived with it.

use hmac::digest::CtOutput;
use hmac::{Hmac, KeyInit, Mac as _};
use sha2::Sha256;

/// Length of a MAC in bytes.
pub(crate) const MAC_LEN: usize = 32;

/// A MAC. Compares in constant time.
#[derive(Clone, Copy, Debug, Eq)]
pub(crate) struct Mac([u8; MAC_LEN]);

impl Mac {
    /// Returns the MAC of `parts`, one after the other. They have fixed lengths, or only the last has not.
    pub(crate) fn new<'a>(key: &[u8], parts: impl IntoIterator<Item = &'a &'a [u8]>) -> Self {
        let mut hmac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
        for part in parts {
            hmac.update(part);
        }
        Self(hmac.finalize().into_bytes().into())
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; MAC_LEN] {
        &self.0
    }
}

impl PartialEq for Mac {
    fn eq(&self, other: &Self) -> bool {
        let constant_time = |mac: &Self| CtOutput::<Hmac<Sha256>>::new(mac.0.into());
        constant_time(self) == constant_time(other)
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

/// Derives a key from `secret` for `context`, which is unique to the purpose, and for `parts`, which have
/// fixed lengths. The length of the context is part of the input, so that no two contexts give the same key.
pub(crate) fn derive_key(context: &str, secret: &[u8], parts: &[&[u8]]) -> [u8; MAC_LEN] {
    let len = (context.len() as u64).to_le_bytes();
    *Mac::new(secret, [&len[..], context.as_bytes()].iter().chain(parts)).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

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
