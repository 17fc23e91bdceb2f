//! The two rings of a vchan (docs/agent-protocol.md, section 7.2), from the client's side.
//!
//! Input: pages that a guest shares, which may lie and change at any time. Each number is read once and checked. Our
//! own positions are kept here, and their copies in the pages are never read again.

use crate::backends::agent::line::LineError;
use crate::sys::xen::shared_pages::{PAGE_BYTES, SharedPages};
use nix::errno::Errno;
use std::ops::Deref;

/// Offsets in the first page.
const ORDERS: [usize; 2] = [16, 18];
pub(super) const CLIENT_LIVES: usize = 20;
const SERVER_LIVES: usize = 21;
/// Offset of the flags by which the server requests notifications of the client's actions; the next is the reverse.
const SERVER_WANTS: usize = 22;
const CLIENT_WANTS: usize = 23;
const REFERENCES: usize = 24;
/// Flags for the actions that cause a notification.
const WRITTEN: u8 = 1;
const READ: u8 = 2;
/// Order of a ring that has pages of its own.
const PAGE_ORDER: u16 = 12;
/// Largest order: rings of more than 256 pages are refused.
const MOST_ORDER: u16 = 20;

/// An invalid value from the server, or the reason why its pages can't be mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RingError {
    Nonsense(String),
    Unmapped(Errno),
}

/// The position of a ring's bytes.
#[derive(Debug)]
struct Ring<P> {
    /// Pages of its own; if `None`, the ring is in the first page.
    pages: Option<P>,
    start: usize,
    bytes: u32,
    /// Offsets of the positions in the first page.
    consumed: usize,
    produced: usize,
    /// Our own position: how much we consumed or produced.
    own: u32,
}

/// Both rings.
#[derive(Debug)]
pub(super) struct Rings<P> {
    first: P,
    /// Client to server.
    out: Ring<P>,
    /// Server to client.
    in_: Ring<P>,
}

/// The result of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moved {
    /// Number of bytes.
    pub bytes: usize,
    /// Whether the server wants to be notified.
    pub notify: bool,
}

impl Moved {
    const NOTHING: Moved = Moved {
        bytes: 0,
        notify: false,
    };
}

impl<P: Deref<Target = SharedPages>> Rings<P> {
    /// Reads the `first` page and maps the pages of the rings.
    ///
    /// # Errors
    /// Says which value of the server is invalid.
    pub fn open(
        first: P,
        mut map: impl FnMut(&[u32]) -> Result<P, Errno>,
    ) -> Result<Self, RingError> {
        let nonsense = |what: String| Err(RingError::Nonsense(what));
        let orders = ORDERS.map(|at| first.half(at));
        if orders
            .iter()
            .any(|order| !(10..=MOST_ORDER).contains(order))
        {
            return nonsense(format!(
                "rings of orders {orders:?}, which are 10 to {MOST_ORDER}"
            ));
        }
        if orders[0] == orders[1] && orders[0] < PAGE_ORDER {
            return nonsense(format!("two rings in one place, of order {}", orders[0]));
        }
        let counts = orders.map(|order| match order {
            PAGE_ORDER.. => 1 << (order - PAGE_ORDER),
            _ => 0,
        });
        let rings_start = orders.iter().filter(|order| **order < PAGE_ORDER);
        let end = rings_start
            .map(|order| 1 << order)
            .min()
            .unwrap_or(PAGE_BYTES);
        let total: usize = counts.iter().sum();
        if REFERENCES + 4 * total > end {
            return nonsense(format!(
                "{total} pages, whose numbers take more than {end} bytes"
            ));
        }
        let references: Vec<u32> = (0..total).map(|n| first.word(REFERENCES + 4 * n)).collect();
        let (left, right) = references.split_at(counts[0]);
        let mut ring = |index: usize, references: &[u32]| {
            let pages = match references {
                [] => None,
                _ => Some(map(references).map_err(RingError::Unmapped)?),
            };
            Ok(Ring {
                // In the first page, a ring of N bytes begins at offset N.
                start: if pages.is_some() {
                    0
                } else {
                    1 << orders[index]
                },
                pages,
                bytes: 1 << orders[index],
                consumed: 8 * index,
                produced: 8 * index + 4,
                own: 0,
            })
        };
        let (mut out, mut in_) = (ring(0, left)?, ring(1, right)?);
        out.own = first.word(out.produced);
        in_.own = first.word(in_.consumed);
        Ok(Rings { first, out, in_ })
    }

    /// Attaches: skips the bytes that the server wrote for another client, and requests a notification of new ones.
    ///
    /// # Errors
    /// Says which value of the server is invalid.
    pub fn enter(&mut self) -> Result<(), LineError> {
        let waiting = self.waiting()?;
        self.in_.own = self.in_.own.wrapping_add(waiting);
        self.first.set_word(self.in_.consumed, self.in_.own);
        self.first.set_byte(CLIENT_LIVES, 1);
        self.first.add_bits(CLIENT_WANTS, WRITTEN);
        self.first.add_bits(SERVER_WANTS, WRITTEN);
        Ok(())
    }

    /// Whether the server states that it exists.
    pub fn is_served(&self) -> bool {
        self.first.byte(SERVER_LIVES) == 1
    }

    /// The first page, for the kernel's actions once we are gone.
    pub fn first(&self) -> &SharedPages {
        &self.first
    }

    /// Number of bytes that wait for us.
    fn waiting(&self) -> Result<u32, LineError> {
        let ring = &self.in_;
        let waiting = self.first.word(ring.produced).wrapping_sub(ring.own);
        if waiting > ring.bytes {
            return Err(LineError::TooFull {
                waiting,
                ring: ring.bytes,
            });
        }
        Ok(waiting)
    }

    /// Whether bytes wait for us; if not, the server will send a notification of the next bytes that it writes.
    pub fn has_some(&self) -> Result<bool, LineError> {
        if self.waiting()? == 0 {
            self.first.add_bits(CLIENT_WANTS, WRITTEN);
        }
        Ok(self.waiting()? > 0)
    }

    /// Takes the waiting bytes, as many as there is room for.
    ///
    /// # Errors
    /// Says which value of the server is invalid.
    pub fn receive(&mut self, into: &mut [u8]) -> Result<Moved, LineError> {
        let count = into.len().min(self.waiting()? as usize);
        let ring = &mut self.in_;
        let pages = ring.pages.as_ref().unwrap_or(&self.first);
        let from = (ring.own & (ring.bytes - 1)) as usize;
        let (head, tail) = into[..count].split_at_mut(count.min(ring.bytes as usize - from));
        pages.copy_out(ring.start + from, head);
        pages.copy_out(ring.start, tail);
        if count == 0 {
            return Ok(Moved::NOTHING);
        }
        ring.own = ring.own.wrapping_add(count as u32);
        self.first.set_word(ring.consumed, ring.own);
        Ok(Moved {
            bytes: count,
            notify: self.first.take_bits(SERVER_WANTS, READ),
        })
    }

    /// Sends as many of `bytes` as there is room for.
    ///
    /// # Errors
    /// Says which value of the server is invalid.
    pub fn send(&mut self, bytes: &[u8]) -> Result<Moved, LineError> {
        let ring = &mut self.out;
        let waiting = ring.own.wrapping_sub(self.first.word(ring.consumed));
        if waiting > ring.bytes {
            return Err(LineError::ReadTooMuch {
                waiting,
                ring: ring.bytes,
            });
        }
        let count = bytes.len().min((ring.bytes - waiting) as usize);
        let pages = ring.pages.as_ref().unwrap_or(&self.first);
        let to = (ring.own & (ring.bytes - 1)) as usize;
        let (head, tail) = bytes[..count].split_at(count.min(ring.bytes as usize - to));
        pages.copy_in(ring.start + to, head);
        pages.copy_in(ring.start, tail);
        if count == 0 {
            return Ok(Moved::NOTHING);
        }
        ring.own = ring.own.wrapping_add(count as u32);
        self.first.set_word(ring.produced, ring.own);
        Ok(Moved {
            bytes: count,
            notify: self.first.take_bits(SERVER_WANTS, WRITTEN),
        })
    }
}
