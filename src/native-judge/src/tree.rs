//! A strict JSON parser into a flat tree that is kept for the next record.
//!
//! A text is read if RFC 8259 allows it; numbers and strings stay where they are in it. What it refuses is not
//! explained: the Python judge reads the text again and says what is wrong.

use wide::{i8x16, CmpEq, CmpLt};

/// Values of a record that are read: the tree of a larger one would take more memory than the record does.
const MAX_NODES: usize = 1 << 22;
/// Brackets within brackets that are read. The Python judge reads deeper ones, up to its own limit.
const MAX_DEPTH: u32 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Null,
    True,
    False,
    /// A number without decimal point and exponent.
    Integer,
    Number,
    /// A string without escapes.
    Text,
    Escaped,
    Array,
    Object,
}

/// A value. Its children follow it in the tree: the items of an array; keys and values of an object by turns.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    pub kind: Kind,
    /// Where the value begins in the text, and where it ends: strings with their quotes.
    pub start: u32,
    pub end: u32,
    /// Index of the node behind it and its children.
    pub next: u32,
}

/// The text is not JSON, or not what this parser reads.
#[derive(Debug)]
pub struct Unread;

pub struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: u32,
    nodes: &'a mut Vec<Node>,
}

/// Read the value at `start` of `bytes` into `nodes`, and return the offset behind it.
pub fn parse(bytes: &[u8], start: usize, nodes: &mut Vec<Node>) -> Result<usize, Unread> {
    nodes.clear();
    let mut parser = Parser { bytes, at: start, depth: 0, nodes };
    parser.value()?;
    Ok(parser.at)
}

pub fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(at) {
        at += 1;
    }
    at
}

impl Parser<'_> {
    fn value(&mut self) -> Result<(), Unread> {
        match self.bytes.get(self.at) {
            Some(b'"') => self.string(),
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b't') => self.word(b"true", Kind::True),
            Some(b'f') => self.word(b"false", Kind::False),
            Some(b'n') => self.word(b"null", Kind::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(Unread),
        }
    }

    fn push(&mut self, kind: Kind, start: usize, end: usize) {
        let next = self.nodes.len() as u32 + 1;
        self.nodes.push(Node { kind, start: start as u32, end: end as u32, next });
    }

    fn word(&mut self, word: &[u8], kind: Kind) -> Result<(), Unread> {
        let start = self.at;
        if !self.bytes[start..].starts_with(word) {
            return Err(Unread);
        }
        self.at += word.len();
        self.push(kind, start, self.at);
        Ok(())
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.bytes.get(self.at) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<(), Unread> {
        let start = self.at;
        let mut kind = Kind::Integer;
        if self.bytes[start] == b'-' {
            self.at += 1;
        }
        let first = self.bytes.get(self.at).copied();
        let whole = self.digits();
        if whole == 0 || (whole > 1 && first == Some(b'0')) {
            return Err(Unread);
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            kind = Kind::Number;
            if self.digits() == 0 {
                return Err(Unread);
            }
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            kind = Kind::Number;
            if let Some(b'+' | b'-') = self.bytes.get(self.at) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return Err(Unread);
            }
        }
        self.push(kind, start, self.at);
        Ok(())
    }

    fn string(&mut self) -> Result<(), Unread> {
        let start = self.at;
        let mut at = start + 1;
        let mut kind = Kind::Text;
        loop {
            at = special(self.bytes, at);
            match self.bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    kind = Kind::Escaped;
                    at = escape(self.bytes, at)?;
                }
                _ => return Err(Unread), // a control character, or the end
            }
        }
        self.at = at + 1;
        self.push(kind, start, self.at);
        Ok(())
    }

    fn open(&mut self, kind: Kind) -> Result<usize, Unread> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Unread);
        }
        self.push(kind, self.at, 0);
        self.at = skip_space(self.bytes, self.at + 1);
        Ok(self.nodes.len() - 1)
    }

    fn close(&mut self, index: usize) {
        self.depth -= 1;
        self.at += 1;
        let next = self.nodes.len() as u32;
        let node = &mut self.nodes[index];
        node.end = self.at as u32;
        node.next = next;
    }

    fn array(&mut self) -> Result<(), Unread> {
        let index = self.open(Kind::Array)?;
        if self.bytes.get(self.at) != Some(&b']') {
            loop {
                self.value()?;
                if !self.is_next(b']')? {
                    continue;
                }
                break;
            }
        }
        self.close(index);
        Ok(())
    }

    fn object(&mut self) -> Result<(), Unread> {
        let index = self.open(Kind::Object)?;
        if self.bytes.get(self.at) != Some(&b'}') {
            loop {
                if self.bytes.get(self.at) != Some(&b'"') {
                    return Err(Unread);
                }
                self.string()?;
                self.at = skip_space(self.bytes, self.at);
                if self.bytes.get(self.at) != Some(&b':') {
                    return Err(Unread);
                }
                self.at = skip_space(self.bytes, self.at + 1);
                self.value()?;
                if self.is_next(b'}')? {
                    break;
                }
            }
        }
        self.close(index);
        Ok(())
    }

    /// Whether `closer` is what follows; if not, a comma must, and what follows that is next.
    fn is_next(&mut self, closer: u8) -> Result<bool, Unread> {
        self.at = skip_space(self.bytes, self.at);
        match self.bytes.get(self.at) {
            Some(&byte) if byte == closer => Ok(true),
            Some(b',') if self.nodes.len() < MAX_NODES => {
                self.at = skip_space(self.bytes, self.at + 1);
                Ok(false)
            }
            _ => Err(Unread),
        }
    }
}

/// Bytes with their highest bit flipped, so that as signed numbers they have the order of unsigned ones.
const fn flipped(byte: u8) -> i8x16 {
    i8x16::new([(byte ^ 0x80) as i8; 16])
}

const QUOTES: i8x16 = flipped(b'"');
const BACKSLASHES: i8x16 = flipped(b'\\');
const SPACES: i8x16 = flipped(b' ');

/// Offset of the first quote, backslash or control character from `at` on, or the length of `bytes`.
fn special(bytes: &[u8], mut at: usize) -> usize {
    while let Some(Ok(sixteen)) = bytes.get(at..at + 16).map(<[u8; 16]>::try_from) {
        let block = i8x16::new(sixteen.map(|byte| (byte ^ 0x80) as i8));
        let found = block.cmp_eq(QUOTES) | block.cmp_eq(BACKSLASHES) | block.cmp_lt(SPACES);
        let found = found.move_mask();
        if found != 0 {
            return at + found.trailing_zeros() as usize;
        }
        at += 16;
    }
    while let Some(&byte) = bytes.get(at) {
        if byte == b'"' || byte == b'\\' || byte < 0x20 {
            break;
        }
        at += 1;
    }
    at
}

/// Offset behind the escape at `at`. A surrogate without its other half is refused: it is no text.
fn escape(bytes: &[u8], at: usize) -> Result<usize, Unread> {
    match bytes.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') => match hexadecimal(bytes, at + 2)? {
            0xD800..=0xDBFF => {
                if bytes.get(at + 6..at + 8) != Some(b"\\u") {
                    return Err(Unread);
                }
                match hexadecimal(bytes, at + 8)? {
                    0xDC00..=0xDFFF => Ok(at + 12),
                    _ => Err(Unread),
                }
            }
            0xDC00..=0xDFFF => Err(Unread),
            _ => Ok(at + 6),
        },
        _ => Err(Unread),
    }
}

fn hexadecimal(bytes: &[u8], at: usize) -> Result<u32, Unread> {
    let digits = bytes.get(at..at + 4).ok_or(Unread)?;
    digits.iter().try_fold(0, |value, &digit| {
        let digit = (digit as char).to_digit(16).ok_or(Unread)?;
        Ok(value * 16 + digit)
    })
}

/// Append what an escaped string means to `text`. `raw` is what is between its quotes, and was read by the parser.
pub fn unescape(raw: &str, text: &mut Vec<u8>) {
    let bytes = raw.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let end = memchr::memchr(b'\\', &bytes[at..]).map_or(bytes.len(), |found| at + found);
        text.extend_from_slice(&bytes[at..end]);
        if end == bytes.len() {
            return;
        }
        at = end + 2;
        let plain = match bytes[end + 1] {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                at = end + 6;
                let mut code = hexadecimal(bytes, end + 2).unwrap_or_default();
                if (0xD800..0xDC00).contains(&code) {
                    at = end + 12;
                    let low = hexadecimal(bytes, end + 8).unwrap_or_default();
                    code = 0x10000 + ((code - 0xD800) << 10) + (low.wrapping_sub(0xDC00) & 0x3FF);
                }
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            other => other as char,
        };
        text.extend_from_slice(plain.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(text: &str) -> bool {
        parse(text.as_bytes(), 0, &mut Vec::new()).is_ok_and(|end| end == text.len())
    }

    #[test]
    fn reads_json_and_nothing_else() {
        for text in [r#"{"a":[1,-0.5e+3,{"b":null}],"c":"\ud83d\ude00\n"}"#, "[]", "{}", "0", "\"\"", "[ 1 , 2 ]"] {
            assert!(reads(text), "{text}");
        }
        for text in ["01", "1.", "-", "[1,]", "{\"a\"}", "{,}", "\"\\ud800\"", "\"\\q\"", "\"\n\"", "nul", "NaN", ""] {
            assert!(!reads(text), "{text}");
        }
        assert!(reads(&("[".repeat(128) + &"]".repeat(128))));
        assert!(!reads(&("[".repeat(129) + &"]".repeat(129))));
    }

    #[test]
    fn finds_special_characters_at_every_offset() {
        for special_byte in [b'"', b'\\', 0x1f, 0] {
            for at in 0..40 {
                let mut bytes = vec![0xC3; 48];
                bytes[at] = special_byte;
                assert_eq!(special(&bytes, 0), at);
            }
        }
        let plain: Vec<u8> = (0x20..=0xff).filter(|byte| !matches!(byte, b'"' | b'\\')).collect();
        assert_eq!(special(&plain, 0), plain.len());
    }

    #[test]
    fn unescapes() {
        let mut text = Vec::new();
        unescape(r#"a\u00e4\ud83d\ude00\/\\\"\n"#, &mut text);
        assert_eq!(String::from_utf8(text).unwrap(), "aä😀/\\\"\n");
    }
}
