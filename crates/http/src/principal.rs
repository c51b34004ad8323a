//! Whose key it is.

use idempotent_sqs::{Fingerprint, Key};

/// The client that a key belongs to: keys of different principals are different keys.
///
/// The principal must be the same in every retry. Use the account or the subject that the authentication outside of the
/// layer has found, or a static API key. Do not use a token that is refreshed: a retry with the new token would have
/// another principal, and run again.
///
/// It is stored and logged as a hash, so it may be made of a secret such as a static API key. The hash has no salt: a
/// secret that is easily guessed can be found from it.
///
/// If clients share one principal, a client that guesses the key and the request of another one gets its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principal(Option<Fingerprint>);

impl Principal {
    /// All clients share their keys. Use it only if all clients trust each other, or if keys are secret.
    pub const GLOBAL: Self = Self(None);

    /// The principal with this id: an account, a tenant, a static API key.
    pub fn new(id: impl AsRef<[u8]>) -> Self {
        Self(Some(Fingerprint::of(id.as_ref())))
    }

    /// The key of the record: no two principals and keys have the same one.
    pub(crate) fn record_key(self, client_key: &str) -> Key {
        let key = match self.0 {
            Some(hash) => format!("{hash}:{client_key}"),
            None => format!("global:{client_key}"),
        };
        Key::new(&key).expect("it is not empty")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_principals_and_keys_have_the_same_record() {
        let principals = [Principal::GLOBAL, Principal::new(""), Principal::new("a"), Principal::new("global")];
        let hash = Fingerprint::of(b"a").to_string();
        let keys = ["b", "a:b", ":b", "global:b", &format!("{hash}:b")];
        let mut records: Vec<_> = principals
            .iter()
            .flat_map(|principal| keys.map(|key| principal.record_key(key).stored().into_owned()))
            .collect();
        records.sort_unstable();
        records.dedup();
        assert_eq!(records.len(), principals.len() * keys.len());
    }
}
