//! The cryptographic functions for `snow`, from crates that need few other crates. `snow`'s own choice of
//! crates needs ten more, some of them in a second version.

use chacha20poly1305::aead::AeadInOut as _;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit as _, Nonce, Tag};
use ed25519_compact::x25519::{PublicKey, SecretKey};
use rustix::rand::{GetRandomFlags, getrandom};
use snow::Error;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};

use crate::keys::TAG_LEN;

/// Provides X25519, ChaCha20-Poly1305, SHA-256, and the system's random numbers.
pub(crate) struct Functions;

impl CryptoResolver for Functions {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(SystemRandom))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::<X25519>::default() as _)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        matches!(choice, HashChoice::SHA256).then(|| Box::new(Sha256(hmac_sha256::Hash::new())) as _)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        let unset = || Box::new(ChaChaPoly(ChaCha20Poly1305::new(&[0; 32].into()))) as _;
        matches!(choice, CipherChoice::ChaChaPoly).then(unset)
    }
}

struct SystemRandom;

impl Random for SystemRandom {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        // Requests of up to 256 bytes are never cut short (getrandom(2)).
        match rustix::io::retry_on_intr(|| getrandom(&mut *dest, GetRandomFlags::empty())) {
            Ok(len) if len == dest.len() => Ok(()),
            _ => Err(Error::Rng),
        }
    }
}

#[derive(Default)]
struct X25519 {
    private: [u8; 32],
    public: [u8; 32],
}

impl Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        self.public.len()
    }

    fn priv_len(&self) -> usize {
        self.private.len()
    }

    fn set(&mut self, privkey: &[u8]) {
        self.private.copy_from_slice(privkey);
        // The base point has a large order, so its product with a clamped scalar is never zero.
        let public = SecretKey::new(self.private).recover_public_key().expect("not zero");
        self.public = *public;
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), Error> {
        let mut private = [0; 32];
        rng.try_fill_bytes(&mut private)?;
        self.set(&private);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &self.private
    }

    fn dh(&self, pubkey: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let pubkey = pubkey.first_chunk().ok_or(Error::Dh)?;
        let shared = PublicKey::new(*pubkey).dh(&SecretKey::new(self.private)).map_err(|_| Error::Dh)?;
        out.get_mut(..shared.len()).ok_or(Error::Dh)?.copy_from_slice(&*shared);
        Ok(())
    }
}

struct Sha256(hmac_sha256::Hash);

impl Hash for Sha256 {
    fn name(&self) -> &'static str {
        "SHA256"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        32
    }

    fn reset(&mut self) {
        self.0 = hmac_sha256::Hash::new();
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        let hash = std::mem::replace(&mut self.0, hmac_sha256::Hash::new()).finalize();
        out[..hash.len()].copy_from_slice(&hash);
    }
}

struct ChaChaPoly(ChaCha20Poly1305);

/// Returns the nonce of the message with this number, as Noise defines it.
fn nonce_of(number: u64) -> Nonce {
    let mut nonce = Nonce::default();
    nonce[4..].copy_from_slice(&number.to_le_bytes());
    nonce
}

impl Cipher for ChaChaPoly {
    fn name(&self) -> &'static str {
        "ChaChaPoly"
    }

    fn set(&mut self, key: &[u8; 32]) {
        self.0 = ChaCha20Poly1305::new(key.into());
    }

    fn encrypt(&self, nonce: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let (text, tag) = out[..plaintext.len() + TAG_LEN].split_at_mut(plaintext.len());
        text.copy_from_slice(plaintext);
        // It fails only for more than 256 GiB.
        let computed = self.0.encrypt_inout_detached(&nonce_of(nonce), authtext, text.into());
        tag.copy_from_slice(&computed.expect("a message of Noise has at most 64 KiB"));
        plaintext.len() + TAG_LEN
    }

    fn decrypt(
        &self,
        nonce: u64,
        authtext: &[u8],
        ciphertext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let (text, tag) = ciphertext.split_last_chunk::<TAG_LEN>().ok_or(Error::Decrypt)?;
        let out = out.get_mut(..text.len()).ok_or(Error::Decrypt)?;
        out.copy_from_slice(text);
        self.0
            .decrypt_inout_detached(&nonce_of(nonce), authtext, out.into(), &Tag::from(*tag))
            .map_err(|_| Error::Decrypt)?;
        Ok(text.len())
    }
}

#[cfg(test)]
mod tests {
    use snow::Builder;

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The expected messages are those of `snow` with its own choice of crates (feature `default-resolver`).
    #[test]
    fn the_messages_are_those_of_other_implementations_of_noise() {
        let begin = || {
            let pattern = "Noise_NNpsk0_25519_ChaChaPoly_SHA256".parse().unwrap();
            let builder = Builder::with_resolver(pattern, Box::new(Functions));
            builder.psk(0, &[7; 32]).unwrap().prologue(b"prologue").unwrap()
        };
        let mut caller = begin().fixed_ephemeral_key_for_testing_only(&[1; 32]).build_initiator().unwrap();
        let mut listener = begin().fixed_ephemeral_key_for_testing_only(&[2; 32]).build_responder().unwrap();
        let (mut message, mut none) = ([0; 48], []);
        caller.write_message(&[], &mut message).unwrap();
        let expected = "a4e09292b651c278b9772c569f5fa9bb13d906b46ab68c9df9dc2b4409f8a209";
        assert_eq!(hex(&message), format!("{expected}5e07145c06bb9aa869e766b33c10687c"));
        listener.read_message(&message, &mut none).unwrap();
        listener.write_message(&[], &mut message).unwrap();
        let expected = "ce8d3ad1ccb633ec7b70c17814a5c76ecd029685050d344745ba05870e587d59";
        assert_eq!(hex(&message), format!("{expected}7d52f36d3a4b4f9325ab82f1331805fc"));
        caller.read_message(&message, &mut none).unwrap();
        let [mut caller, mut listener] =
            [caller, listener].map(|handshake| handshake.into_transport_mode().unwrap());
        for (text, expected) in [
            ("first", "452b83e1387b393551fc79db032983134af1c53c07"),
            ("second", "e4d11de90d1cbf27b33fbdaf909cb21d291e2ff59bff"),
        ] {
            let (mut sealed, mut opened) = ([0; 64], [0; 64]);
            let len = caller.write_message(text.as_bytes(), &mut sealed).unwrap();
            assert_eq!(hex(&sealed[..len]), expected);
            let len = listener.read_message(&sealed[..len], &mut opened).unwrap();
            assert_eq!(&opened[..len], text.as_bytes());
        }
    }

    /// Public keys that make the shared key independent of the private key are refused.
    #[test]
    fn weak_public_keys_are_refused() {
        let mut own = X25519::default();
        own.generate(&mut SystemRandom).unwrap();
        let mut one = [0; 32];
        one[0] = 1;
        for weak in [[0; 32], one] {
            assert_eq!(own.dh(&weak, &mut [0; 32]), Err(Error::Dh));
        }
    }
}
