//! Mutated input for property tests: bytes replaced, cut, inserted, repeated.

mod status;
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum InputMutation {
    Replace(usize, u8),
    Cut(usize),
    Insert(usize, Vec<u8>),
    Repeat(usize, usize),
}

/// The seed, mutated in up to five places.
pub(crate) fn mutated(seed: &'static str) -> impl Strategy<Value = Vec<u8>> {
    vec(mutation(seed.len()), 1..6).prop_map(|mutations| {
        let mut bytes = seed.as_bytes().to_vec();
        mutations.iter().for_each(|mutation| mutation.apply(&mut bytes));
        bytes
    })
}

fn mutation(length: usize) -> impl Strategy<Value = InputMutation> {
    let at = 0..length;
    let tokens = proptest::sample::select(
        [
            "null", "\\ud800", "\\u0000", "{", "}", "[", "]", ",", "\"", ":", "-1", "1e9", "true", "\u{feff}",
        ]
        .as_slice(),
    );
    prop_oneof![
        (at.clone(), any::<u8>()).prop_map(|(at, byte)| InputMutation::Replace(at, byte)),
        at.clone().prop_map(InputMutation::Cut),
        (at.clone(), tokens).prop_map(|(at, token)| InputMutation::Insert(at, token.as_bytes().to_vec())),
        (at.clone(), at).prop_map(|(from, to)| InputMutation::Repeat(from.min(to), from.max(to))),
    ]
}

impl InputMutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        let within = |at: usize| at.min(length);
        match self {
            Self::Replace(at, byte) => {
                if let Some(place) = bytes.get_mut(*at) {
                    *place = *byte;
                }
            }
            Self::Cut(at) => bytes.truncate(*at),
            Self::Insert(at, token) => {
                let at = within(*at);
                bytes.splice(at..at, token.iter().copied());
            }
            Self::Repeat(from, to) => {
                let (from, to) = (within(*from), within(*to));
                let span = bytes[from..to].to_vec();
                bytes.splice(to..to, span);
            }
        }
    }
}
