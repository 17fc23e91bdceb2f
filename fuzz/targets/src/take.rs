//! Takes numbers and pieces off the front of an input. What is missing is zero or empty, so that
//! every input means something.

/// The rest of an input.
pub struct Take<'a>(pub &'a [u8]);

impl<'a> Take<'a> {
    /// One byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    /// Eight bytes, the least significant first.
    pub fn word(&mut self) -> u64 {
        (0..8).fold(0, |word, place| {
            word | u64::from(self.byte()) << (8 * place)
        })
    }

    /// A piece whose length stands before it in two bytes; shorter where the input ends.
    pub fn piece(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()) | usize::from(self.byte()) << 8;
        let (piece, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        piece
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

/// Pieces as [`Take::piece`] takes them; a piece is cut where its length has no room.
pub fn put_piece(out: &mut Vec<u8>, piece: &[u8]) {
    let piece = &piece[..piece.len().min(usize::from(u16::MAX))];
    out.extend((piece.len() as u16).to_le_bytes());
    out.extend(piece);
}
