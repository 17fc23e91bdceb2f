//! Reuses earlier translations. A stack lies in the same pages from sample to sample, but the guest may change its page
//! tables in between. So a translation is used again only if every table word that led to it is still the same, which
//! takes a few instructions a word.
//!
//! Input: where the words of a walk are mapped. Output: where the page is mapped. Nothing here reads memory by itself.

use crate::guest::page_tables::Paging;

/// Most table words of a walk: x86-64 with five levels.
const MOST_WORDS: usize = 5;
/// Size of the pages that are translated, in bytes.
const PAGE_BYTES: u64 = 4096;
/// Number of translations kept: two pages of stack for each of 32 vCPUs, with room for hash collisions.
const KEPT: usize = 1 << KEPT_BITS;
const KEPT_BITS: u32 = 8;

/// A word of a page table: its number among the mapped words, and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableWord {
    pub number: u32,
    pub value: u64,
}

/// The words of one walk.
#[derive(Debug, Clone, Copy)]
pub struct Walk {
    words: [TableWord; MOST_WORDS],
    count: usize,
}

impl Walk {
    /// A walk without words.
    pub const fn new() -> Self {
        let none = TableWord {
            number: 0,
            value: 0,
        };
        Walk {
            words: [none; MOST_WORDS],
            count: 0,
        }
    }

    /// Adds the next word.
    pub fn add(&mut self, word: TableWord) {
        if let Some(place) = self.words.get_mut(self.count) {
            *place = word;
            self.count += 1;
        }
    }

    /// The last word of `other`, if all words before it are the same as in this walk.
    fn last_of(&self, other: &Walk) -> Option<TableWord> {
        let (_, own) = self.words[..self.count].split_last()?;
        let (last, others) = other.words[..other.count].split_last()?;
        (own == others).then_some(*last)
    }
}

/// The translation of one page, and of the next one.
#[derive(Debug, Clone, Copy)]
pub struct Translation {
    /// Its first address; no page has [`NO_PAGE`].
    page_address: u64,
    paging: Paging,
    walk: Walk,
    /// The page where its frame is mapped.
    pub found: u32,
    /// The same for the guest's next page, whose walk may differ only in its last table word; with that word.
    pub next: Option<(TableWord, u32)>,
}

const NO_PAGE: u64 = u64::MAX;
const NONE: Translation = Translation {
    page_address: NO_PAGE,
    paging: Paging::Unsupported,
    walk: Walk::new(),
    found: 0,
    next: None,
};

/// The last translations, at most one for each hash of a page.
#[derive(Debug)]
pub struct Translations {
    kept: Box<[Translation; KEPT]>,
}

impl Translations {
    /// Without translations.
    pub fn new() -> Self {
        Translations {
            kept: Box::new([NONE; KEPT]),
        }
    }

    /// Forgets all translations, for instance because mappings are dropped.
    pub fn forget(&mut self) {
        self.kept.fill(NONE);
    }

    /// The upper bits of the product with the golden ratio separate stacks that lie at equal distances (Knuth, The Art
    /// of Computer Programming, volume 3, section 6.4).
    fn index(page_address: u64) -> usize {
        let product = (page_address >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (product >> (u64::BITS - KEPT_BITS)) as usize
    }

    /// Where the page at `page_address` is mapped, if that is known and `is_still` is true of each table word of its
    /// walk. The next page's last word is not checked.
    #[inline]
    pub fn find(
        &self,
        paging: &Paging,
        page_address: u64,
        is_still: impl Fn(&TableWord) -> bool,
    ) -> Option<&Translation> {
        let kept = &self.kept[Self::index(page_address)];
        let is_it = kept.page_address == page_address && kept.paging == *paging;
        (is_it && kept.walk.words[..kept.walk.count].iter().all(is_still)).then_some(kept)
    }

    /// Keeps the translation of the page at `page_address`, instead of another with the same hash.
    pub fn keep(&mut self, paging: &Paging, page_address: u64, walk: Walk, found: u32) {
        let below = page_address.wrapping_sub(PAGE_BYTES);
        let before = &mut self.kept[Self::index(below)];
        if before.page_address == below && before.paging == *paging {
            before.next = before.walk.last_of(&walk).map(|last| (last, found));
        }
        self.kept[Self::index(page_address)] = Translation {
            page_address,
            paging: *paging,
            walk,
            found,
            next: None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Paging = Paging::X86_64 { root: 7, levels: 4 };

    fn walk() -> Walk {
        let mut walk = Walk::new();
        for number in 0..4 {
            walk.add(TableWord {
                number,
                value: 100 + u64::from(number),
            });
        }
        walk
    }

    #[test]
    fn a_translation_holds_while_its_words_do() {
        let mut known = Translations::new();
        known.keep(&ROOT, 0x5000, walk(), 9);
        let same = |word: &TableWord| word.value == 100 + u64::from(word.number);
        let found = |found: Option<&Translation>| found.map(|found| found.found);
        assert_eq!(found(known.find(&ROOT, 0x5000, same)), Some(9));
        for changed in 0..4 {
            let is_still = |word: &TableWord| word.number != changed;
            assert!(
                known.find(&ROOT, 0x5000, is_still).is_none(),
                "word {changed}"
            );
        }
        known.forget();
        assert!(known.find(&ROOT, 0x5000, same).is_none());
    }

    #[test]
    fn it_is_of_one_page_in_one_address_space() {
        let mut known = Translations::new();
        known.keep(&ROOT, 0x5000, walk(), 9);
        let other = Paging::X86_64 { root: 8, levels: 4 };
        assert!(known.find(&other, 0x5000, |_| true).is_none());
        for page in (0..64 * KEPT as u64)
            .map(|page| page << 12)
            .filter(|page| *page != 0x5000)
        {
            assert!(known.find(&ROOT, page, |_| true).is_none(), "{page:#x}");
        }
        assert!(known.find(&ROOT, NO_PAGE & !0xfff, |_| true).is_none());
    }

    #[test]
    fn the_next_page_is_known_where_only_the_last_word_differs() {
        let mut known = Translations::new();
        let next = |known: &Translations| known.find(&ROOT, 0x5000, |_| true).unwrap().next;
        known.keep(&ROOT, 0x5000, walk(), 9);
        assert_eq!(next(&known), None);
        let mut above = walk();
        let last = TableWord {
            number: 4,
            value: 7,
        };
        above.words[3] = last;
        known.keep(&ROOT, 0x6000, above, 3);
        assert_eq!(next(&known), Some((last, 3)));
        let mut elsewhere = above;
        elsewhere.words[2].value += 1;
        known.keep(&ROOT, 0x6000, elsewhere, 3);
        assert_eq!(next(&known), None);
        known.keep(&ROOT, 0x6000, above, 3);
        let other = Paging::X86_64 { root: 8, levels: 4 };
        known.keep(&other, 0x6000, above, 4);
        assert_eq!(next(&known), Some((last, 3)));
        let mut shorter = above;
        shorter.count = 3;
        known.keep(&ROOT, 0x6000, shorter, 3);
        assert_eq!(next(&known), None);
        known.keep(&ROOT, 0x5000, walk(), 9);
        assert_eq!(next(&known), None);
    }

    #[test]
    fn stacks_of_eight_vcpus_do_not_meet() {
        for first in [
            0x14a,
            0xffff_c900_405e_b000_u64 >> 12,
            0xffff_8880_07a3_1000 >> 12,
        ] {
            for distance in [2, 4, 5, 8, 16, 32] {
                let pages =
                    (0..8).flat_map(|vcpu| [0, 1].map(|page| first + vcpu * distance + page));
                let mut places: Vec<_> =
                    pages.map(|page| Translations::index(page << 12)).collect();
                places.sort_unstable();
                places.dedup();
                assert_eq!(places.len(), 16, "{first:#x}, {distance} pages apart");
            }
        }
    }
}
