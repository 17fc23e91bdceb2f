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

    /// A number as the format has it (format-spec.md, section 1).
    pub fn varint(&mut self) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte();
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

/// A number as [`Take::varint`] takes it.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Pieces as [`Take::piece`] takes them; a piece is cut where its length has no room.
pub fn put_piece(out: &mut Vec<u8>, piece: &[u8]) {
    let piece = &piece[..piece.len().min(usize::from(u16::MAX))];
    out.extend((piece.len() as u16).to_le_bytes());
    out.extend(piece);
}
