//! The registers of a stub: its target description, an XML document with included parts.
//!
//! Input: the documents' text. Output: architecture and registers with their positions in a `g` reply. Parses only the
//! part of XML that descriptions need: tags with attributes, and text. Comments and declarations are skipped, and
//! entities are not expanded (names have none). Size and counts are bounded. Anything else is skipped, never an error.
//! Source: "Debugging with GDB", appendix G (Target Descriptions).

use std::collections::HashMap;
use uprof::Arch;

/// Most bytes of all documents together.
pub const MOST_BYTES: usize = 2 << 20;
/// Most documents.
pub const MOST_DOCUMENTS: usize = 64;
/// Most registers; QEMU's Arm guests have some 400.
const MOST_REGISTERS: usize = 8192;

/// One register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterDescription {
    /// Its name.
    pub name: String,
    /// Its number, for `p`.
    pub number: u32,
    /// Its size in bits.
    pub bits: u32,
}

/// A tag, with its attributes' text, or text between tags.
#[derive(Debug, PartialEq, Eq)]
enum Token<'a> {
    Tag(&'a str, &'a str),
    Text(&'a str),
}

/// A target description.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// The text of `<architecture>`.
    pub architecture: String,
    /// Registers, in order of number.
    pub registers: Vec<RegisterDescription>,
}

impl Description {
    /// Reads the document `name` and all that it includes; `fetch` gets a document's text.
    ///
    /// # Errors
    /// Those of `fetch`.
    pub fn read<E>(
        name: &str,
        mut fetch: impl FnMut(&str) -> Result<String, E>,
    ) -> Result<Self, E> {
        let mut documents = HashMap::new();
        let mut description = Description::default();
        let mut left = MOST_BYTES;
        description.add(name, &mut documents, &mut left, &mut fetch)?;
        // Numbered registers may be anywhere.
        description
            .registers
            .sort_by_key(|register| register.number);
        Ok(description)
    }

    fn add<E>(
        &mut self,
        name: &str,
        seen: &mut HashMap<String, ()>,
        left: &mut usize,
        fetch: &mut impl FnMut(&str) -> Result<String, E>,
    ) -> Result<(), E> {
        if seen.len() >= MOST_DOCUMENTS || seen.insert(name.to_owned(), ()).is_some() {
            return Ok(());
        }
        let text = fetch(name)?;
        let Some(rest) = left.checked_sub(text.len()) else {
            return Ok(());
        };
        *left = rest;
        let mut in_architecture = false;
        for token in tokens(&text) {
            match token {
                Token::Tag("architecture", _) => in_architecture = true,
                Token::Tag("reg", attributes) => self.add_register(attributes),
                Token::Tag("xi:include", attributes) => {
                    if let Some(part) = attribute(attributes, "href") {
                        self.add(part, seen, left, fetch)?;
                    }
                }
                Token::Tag(..) => in_architecture = false,
                Token::Text(text) if in_architecture => {
                    self.architecture = text.trim().chars().take(64).collect();
                    in_architecture = false;
                }
                Token::Text(_) => {}
            }
        }
        Ok(())
    }

    fn add_register(&mut self, attributes: &str) {
        let next = self
            .registers
            .last()
            .map_or(0, |last| last.number.saturating_add(1));
        let number = attribute(attributes, "regnum").and_then(|text| text.parse().ok());
        let bits = attribute(attributes, "bitsize").and_then(|text| text.parse().ok());
        if let (Some(name), Some(bits)) = (attribute(attributes, "name"), bits)
            && self.registers.len() < MOST_REGISTERS
            && bits <= 1 << 16
        {
            self.registers.push(RegisterDescription {
                name: name.to_owned(),
                number: number.unwrap_or(next),
                bits,
            });
        }
    }

    /// The instruction set, if it is supported.
    pub fn arch(&self) -> Option<Arch> {
        match self.architecture.as_str() {
            "i386:x86-64" | "i386:x86-64:intel" | "i386:x64-32" => Some(Arch::X86_64),
            "aarch64" | "arm64" => Some(Arch::Aarch64),
            // If the element is missing, a register that only this architecture has decides.
            "" if self.find("rip").is_some() => Some(Arch::X86_64),
            "" if self.find("x30").is_some() => Some(Arch::Aarch64),
            _ => None,
        }
    }

    /// The register of this name.
    pub fn find(&self, name: &str) -> Option<&RegisterDescription> {
        self.registers.iter().find(|register| register.name == name)
    }

    /// The range of the register's hexadecimal digits in a `g` reply, which has all registers in order of number.
    pub fn place(&self, name: &str) -> Option<std::ops::Range<usize>> {
        let mut at = 0;
        for register in &self.registers {
            let digits = register.bits.div_ceil(8) as usize * 2;
            if register.name == name {
                return Some(at..at + digits);
            }
            at += digits;
        }
        None
    }
}

/// Splits a document into tags and text; the name of a closing tag includes its slash.
fn tokens(document: &str) -> impl Iterator<Item = Token<'_>> {
    let mut rest = document;
    std::iter::from_fn(move || {
        loop {
            if rest.is_empty() {
                return None;
            }
            if let Some(comment) = rest.strip_prefix("<!--") {
                rest = comment.split_once("-->").map_or("", |(_, after)| after);
                continue;
            }
            let Some(inside) = rest.strip_prefix('<') else {
                let end = rest.find('<').unwrap_or(rest.len());
                let text;
                (text, rest) = rest.split_at(end);
                return Some(Token::Text(text));
            };
            let Some((tag, after)) = inside.split_once('>') else {
                rest = "";
                continue;
            };
            rest = after;
            let end = tag
                .find(|letter: char| letter.is_whitespace())
                .unwrap_or(tag.trim_end_matches('/').len());
            let (name, attributes) = tag.split_at(end);
            return Some(Token::Tag(name, attributes));
        }
    })
}

/// The value of attribute `name`.
fn attribute<'a>(attributes: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = attributes;
    loop {
        let (key, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let quote = after
            .chars()
            .next()
            .filter(|&quote| quote == '"' || quote == '\'')?;
        let (value, next) = after[1..].split_once(quote)?;
        if key.trim() == name {
            return Some(value);
        }
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: &str = r#"<?xml version="1.0"?><!DOCTYPE target SYSTEM "gdb-target.dtd">
<target><architecture>i386:x86-64</architecture><xi:include href="core.xml"/></target>"#;
    const CORE: &str = r#"<feature name="org.gnu.gdb.i386.core"><!-- <reg name="no" bitsize="8"/> -->
<flags id="f" size="4"><field name="" start="0" end="0"/></flags>
<reg name="rax" bitsize="64" type='int64'/> <reg bitsize="64" name="rip" regnum="5" />
<reg name="eflags" bitsize="32"/><reg name="early" bitsize="16" regnum="1"/></feature>"#;

    fn read(documents: &[(&str, &str)]) -> Description {
        Description::read("target.xml", |name| {
            let found = documents.iter().find(|(known, _)| *known == name);
            found.map(|(_, text)| (*text).to_owned()).ok_or(())
        })
        .unwrap_or_default()
    }

    #[test]
    fn registers_and_their_places() {
        let description = read(&[("target.xml", TARGET), ("core.xml", CORE)]);
        assert_eq!(description.arch(), Some(Arch::X86_64));
        let names: Vec<_> = description
            .registers
            .iter()
            .map(|r| (&*r.name, r.number))
            .collect();
        assert_eq!(names, [("rax", 0), ("early", 1), ("rip", 5), ("eflags", 6)]);
        assert_eq!(description.place("rip"), Some(20..36));
        assert_eq!(description.place("eflags"), Some(36..44));
        assert_eq!(description.place("no"), None);
    }

    #[test]
    fn odd_documents_are_survived() {
        let circle = r#"<xi:include href="target.xml"/><reg name="a" bitsize="8"/>"#;
        assert_eq!(read(&[("target.xml", circle)]).registers.len(), 1);
        let wide = r#"<reg name="a" bitsize="4294967295"/><reg name=b bitsize="8"><reg name="c"#;
        assert!(read(&[("target.xml", wide)]).registers.is_empty());
        let other = "<target><architecture>riscv:rv64</architecture></target>";
        assert_eq!(read(&[("target.xml", other)]).arch(), None);
        let many = r#"<reg name="a" bitsize="8" regnum="4294967295"/>"#.repeat(MOST_REGISTERS + 9);
        assert_eq!(
            read(&[("target.xml", &many)]).registers.len(),
            MOST_REGISTERS
        );
        // Every truncation of a sound document.
        for end in (0..CORE.len()).filter(|&end| CORE.is_char_boundary(end)) {
            let _ = read(&[("target.xml", &CORE[..end])]);
        }
    }
}
