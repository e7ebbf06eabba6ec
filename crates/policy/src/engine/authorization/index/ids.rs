//! A short list of numbers that needs no allocation until it is long.

/// Numbers in the order pushed. Most users have fewer groups than fit inline.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ids {
    inline: [u32; Ids::INLINE],
    len: usize,
    spilled: Vec<u32>,
}

impl Ids {
    const INLINE: usize = 16;

    pub(crate) fn push(&mut self, id: u32) {
        if !self.spilled.is_empty() {
            self.spilled.push(id);
        } else if let Some(slot) = self.inline.get_mut(self.len) {
            *slot = id;
            self.len += 1;
        } else {
            self.spilled.reserve(4 * Self::INLINE);
            self.spilled.extend(self.inline);
            self.spilled.push(id);
        }
    }

    pub(crate) fn as_slice(&self) -> &[u32] {
        if self.spilled.is_empty() {
            // `len` never exceeds the inline places.
            self.inline.split_at(self.len.min(Self::INLINE)).0
        } else {
            &self.spilled
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_is_pushed_inline_and_beyond() {
        for count in [0, 1, 15, 16, 17, 100] {
            let mut ids = Ids::default();
            (0..count).for_each(|id| ids.push(id));
            assert_eq!(ids.as_slice(), (0..count).collect::<Vec<_>>());
        }
    }
}
