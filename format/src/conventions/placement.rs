//! The one rule that decides whether a guest runs an image, and where the image is loaded; recorder, doctor and report
//! use it. Input: an image, and code that was read from the guest's memory. Output: the image's bias, or the reason why
//! it can't be determined.
//!
//! Each piece of code is searched for in the image's text, at the same offset in a page, since images are moved by
//! whole pages. Each match is a vote for a bias. The biases with most votes are checked with all pieces that are then
//! in the image. Relocated addresses in the code differ by exactly the bias, and count as matches. So do bytes that
//! the image declares as patched at run time.

use crate::cold::Code;
use crate::cpu::x86_64::CALL_OPCODE;
use std::borrow::Cow;
use std::collections::HashMap;

/// The code of an image, by the addresses that it is linked at.
pub trait ImageText {
    /// The parts that hold code: first addresses, and numbers of bytes in the file.
    fn parts(&self) -> Vec<(u64, u64)>;

    /// `length_bytes` bytes of code; `None` if the file has fewer.
    fn code_at(&self, address: u64, length_bytes: u64) -> Option<Cow<'_, [u8]>>;

    /// The page where its lowest part begins.
    fn lowest_page(&self) -> Option<u64>;

    /// Whether the guest may run other code at many addresses, since kernels patch their code when they boot.
    fn may_be_patched(&self) -> bool;

    /// Whether the image declares the byte at `address` as patched.
    fn is_written_over(&self, _address: u64) -> bool {
        false
    }
}

/// Unit by which images are moved, in bytes.
pub const PAGE_BYTES: u64 = 4096;
/// Most records of code to search for.
const CODES_MAX: usize = 128;
/// The part of an image's text to search (bytes).
const TEXT_BYTES_MAX: u64 = 128 << 20;
/// A piece that is in the image more often than this, as identical functions are, has no vote.
const PLACES_MAX: usize = 8;
/// Most biases to check.
const CHECKED_MAX: usize = 8;
/// Fewest pieces that must match. A single one may match by chance, or be in another build, too.
const SAME_MIN: usize = 2;

/// The position of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// Difference to add (wrapping) to the image's own addresses.
    pub bias: u64,
    /// How well its code matches there.
    pub agreement: Agreement,
}

/// How well code of a guest matches an image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Pieces that match.
    pub same: usize,
    /// Pieces that don't match.
    pub other: usize,
}

impl Agreement {
    /// Pieces that were compared.
    pub fn compared(self) -> usize {
        self.same + self.other
    }
}

/// The reason why an image's position can't be determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotLocated {
    /// No piece is in it.
    #[error(
        "none of the guest's code that was recorded ({pieces} pieces) is in it: it is another build's, or \
         none of it ran"
    )]
    Foreign {
        /// Pieces that were searched for.
        pieces: usize,
    },
    /// Too few pieces agree.
    #[error(
        "at the likeliest place ({start:#x}) the guest's code is the image's at {} of {} pieces: it is \
         another build's, or too little of it ran", agreement.same, agreement.compared()
    )]
    Doubtful {
        /// The bias of that position.
        bias: u64,
        /// First address at that position.
        start: u64,
        /// How well the code matches at that position.
        agreement: Agreement,
    },
    /// There are several possible positions.
    #[error("it may be at {first:#x} or at {second:#x}: give the right one as FILE@ADDRESS")]
    Ambiguous {
        /// First address at the most likely position.
        first: u64,
        /// First address at another position.
        second: u64,
    },
}

/// A piece of a guest's code.
struct Piece<'c> {
    address: u64,
    bytes: &'c [u8],
}

fn pieces(code: &[Code]) -> impl Iterator<Item = Piece<'_>> {
    let pieces = code.iter().take(CODES_MAX).flat_map(Code::pieces);
    pieces
        .map(|(address, bytes)| Piece { address, bytes })
        .filter(|piece| piece.bytes.len() == Code::PIECE_BYTES && Code::is_telling(piece.bytes))
}

/// Finds `image` among `code`.
///
/// # Errors
/// [`NotLocated`] if it isn't there, or if its position isn't certain.
pub fn locate(image: &(impl ImageText + ?Sized), code: &[Code]) -> Result<Located, NotLocated> {
    let pieces: Vec<Piece<'_>> = pieces(code).collect();
    let mut votes = HashMap::<u64, usize>::new();
    for bias in places(image, &pieces).into_iter().flatten() {
        *votes.entry(bias).or_default() += 1;
    }
    let mut votes: Vec<(usize, u64)> = votes
        .into_iter()
        .map(|(bias, count)| (count, bias))
        .collect();
    votes.sort_by_key(|&(count, bias)| (std::cmp::Reverse(count), bias));
    let checked = votes.iter().take(CHECKED_MAX).map(|&(_, bias)| Located {
        bias,
        agreement: agreement(image, bias, code),
    });
    let mut checked: Vec<Located> = checked.collect();
    checked.sort_by_key(|found| std::cmp::Reverse(found.agreement.same));
    let Some(&best) = checked.first() else {
        return Err(NotLocated::Foreign {
            pieces: pieces.len(),
        });
    };
    // At the link-time address nothing is guessed, so less evidence suffices.
    let least = if best.bias == 0 { 1 } else { SAME_MIN };
    if best.agreement.same < least || contradicts(image, best.agreement) {
        return Err(NotLocated::Doubtful {
            bias: best.bias,
            start: start(image, best.bias),
            agreement: best.agreement,
        });
    }
    // Identical functions may give another position a few votes.
    if let Some(second) = checked.get(1)
        && second.agreement.same * 2 > best.agreement.same
    {
        return Err(NotLocated::Ambiguous {
            first: start(image, best.bias),
            second: start(image, second.bias),
        });
    }
    Ok(best)
}

/// How well `code` matches `image` moved by `bias`.
pub fn agreement(image: &(impl ImageText + ?Sized), bias: u64, code: &[Code]) -> Agreement {
    let mut found = Agreement::default();
    for piece in pieces(code) {
        let address = piece.address.wrapping_sub(bias);
        let Some(own) = image.code_at(address, Code::PIECE_BYTES as u64) else {
            continue;
        };
        // A page that a hypervisor fills is empty in the image.
        if !Code::is_telling(&own) {
            continue;
        }
        let is_kept = |at: usize| !image.is_written_over(address.wrapping_add(at as u64));
        let is_same = is_same(&own, piece.bytes, bias, is_kept);
        found.same += usize::from(is_same);
        found.other += usize::from(!is_same);
    }
    found
}

/// Whether the code contradicts that the guest has the image there. Kernels patch some of their code, so they may
/// differ more.
pub fn contradicts(image: &(impl ImageText + ?Sized), agreement: Agreement) -> bool {
    let allowed = if image.may_be_patched() {
        agreement.same
    } else {
        agreement.same / 4
    };
    agreement.other > allowed
}

/// The address of the image's lowest page after a move by `bias`.
pub fn start(image: &(impl ImageText + ?Sized), bias: u64) -> u64 {
    let lowest = image.lowest_page().unwrap_or(0);
    lowest.wrapping_add(bias)
}

/// The biases at which each of `pieces` is in `image`; empty for a piece with too many.
fn places(image: &(impl ImageText + ?Sized), pieces: &[Piece<'_>]) -> Vec<Vec<u64>> {
    let mut found = vec![Vec::new(); pieces.len()];
    let mut left_bytes = TEXT_BYTES_MAX;
    for (start, file_bytes) in image.parts() {
        let length_bytes = file_bytes.min(left_bytes);
        left_bytes -= length_bytes;
        // A recorder has to read the text from the file.
        let Some(text) = image.code_at(start, length_bytes) else {
            continue;
        };
        for (piece, found) in pieces.iter().zip(&mut found) {
            let first = piece.address.wrapping_sub(start) % PAGE_BYTES;
            for at in (first as usize..text.len()).step_by(PAGE_BYTES as usize) {
                let Some(own) = text.get(at..at + Code::PIECE_BYTES) else {
                    break;
                };
                let address = start.wrapping_add(at as u64);
                let bias = piece.address.wrapping_sub(address);
                let is_new = found.len() <= PLACES_MAX && !found.contains(&bias);
                if is_new && is_same(own, piece.bytes, bias, |_| true) {
                    found.push(bias);
                }
            }
        }
    }
    found.retain(|biases| biases.len() <= PLACES_MAX);
    found
}

/// The instruction with which Linux replaces calls that only tracing needs.
const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// Whether code matches. It may differ by relocation by `bias`, in bytes patched at run time, and in calls for tracing.
fn is_same(own: &[u8], seen: &[u8], bias: u64, is_kept: impl Fn(usize) -> bool) -> bool {
    // This rejects most positions without comparing everything.
    let equal = own.iter().zip(seen).filter(|(own, seen)| own == seen);
    if equal.count() < Code::PIECE_BYTES / 2 {
        return false;
    }
    let mut at = 0;
    while at < own.len() {
        let nop = &NOP[..NOP.len().min(own.len() - at)];
        if own[at] == seen[at] || !is_kept(at) {
            at += 1;
        } else if own[at] == CALL_OPCODE && seen[at..].starts_with(nop) {
            at += nop.len();
        } else if let Some(end) = relocated(own, seen, at, bias) {
            at = end;
        } else {
            return false;
        }
    }
    true
}

/// The end of the relocated address that `at` is in, if it is in one.
fn relocated(own: &[u8], seen: &[u8], at: usize, bias: u64) -> Option<usize> {
    let number = |bytes: &[u8]| {
        let bytes = bytes.iter().rev();
        bytes.fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    [4, 8].into_iter().find_map(|length| {
        let starts = at.saturating_sub(length - 1)..=at;
        let mask = u64::MAX >> (64 - 8 * length);
        starts.into_iter().find_map(|start| {
            let (own, seen) = (
                own.get(start..start + length)?,
                seen.get(start..start + length)?,
            );
            let added = number(seen).wrapping_sub(number(own)) & mask;
            // Addresses relative to something that isn't moved decrease.
            (added == bias & mask || added == bias.wrapping_neg() & mask).then_some(start + length)
        })
    })
}
