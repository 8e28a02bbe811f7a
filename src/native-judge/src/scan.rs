//! Where JSON values begin and end, told by quotes and brackets alone: the structural scan of `lakeproof.judge.scan`.
//!
//! Only what is not valid JSON comes here. Nothing recurses.

use crate::tree::skip_space;
use memchr::memchr2;

/// The brackets or quotes do not match. The Python scan says why.
#[derive(Debug)]
pub struct Unstructured;

/// Offset behind the last byte of `bytes[start..end]` that is not white space, or `start`.
pub fn content_end(bytes: &[u8], start: usize, mut end: usize) -> usize {
    while end > start && matches!(bytes[end - 1], b' ' | b'\n' | b'\r' | b'\t') {
        end -= 1;
    }
    end
}

/// Offset behind the closing bracket of the object or array that opens at `start`.
pub fn container_end(bytes: &[u8], start: usize, end: usize) -> Result<usize, Unstructured> {
    let mut closers = Vec::new();
    let mut at = start;
    while at < end {
        match bytes[at] {
            b'"' => {
                at = string_end(bytes, at, end)?;
                continue;
            }
            b'{' => closers.push(b'}'),
            b'[' => closers.push(b']'),
            closer @ (b'}' | b']') => {
                if closers.pop() != Some(closer) {
                    return Err(Unstructured);
                }
                if closers.is_empty() {
                    return Ok(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
    Err(Unstructured)
}

/// Offset of the `,` or `]` behind the array element that begins at `start`.
pub fn element_end(bytes: &[u8], start: usize, end: usize) -> Result<usize, Unstructured> {
    let mut at = start;
    while at < end {
        match bytes[at] {
            b',' | b']' => {
                return if skip_space(&bytes[..at], start) == at { Err(Unstructured) } else { Ok(at) };
            }
            b'"' => at = string_end(bytes, at, end)?,
            b'}' => return Err(Unstructured),
            b'{' | b'[' => at = container_end(bytes, at, end)?,
            _ => at += 1,
        }
    }
    Err(Unstructured)
}

/// Offset behind the closing quote of the string that opens at `start`.
fn string_end(bytes: &[u8], start: usize, end: usize) -> Result<usize, Unstructured> {
    let mut at = start + 1;
    while let Some(found) = bytes.get(at..end).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes[at] == b'"' {
            return Ok(at + 1);
        }
        at += 2;
    }
    Err(Unstructured)
}

/// Whether a line is an object by itself, not indented, and closed.
pub fn is_object(bytes: &[u8], start: usize, stop: usize) -> bool {
    bytes.get(start) == Some(&b'{')
        && container_end(bytes, start, stop).is_ok_and(|end| end == content_end(bytes, start, stop))
}

/// The next line from `start` on that is not blank: where it begins, ends without its line end, and where the next is.
pub fn line(bytes: &[u8], mut start: usize, end: usize) -> Option<(usize, usize, usize)> {
    while start < end {
        let newline = memchr::memchr(b'\n', &bytes[start..end]);
        let (mut stop, behind) = newline.map_or((end, end), |found| (start + found, start + found + 1));
        if stop > start && bytes[stop - 1] == b'\r' {
            stop -= 1;
        }
        if skip_space(&bytes[..stop], start) < stop {
            return Some((start, stop, behind));
        }
        start = behind;
    }
    None
}
