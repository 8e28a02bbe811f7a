//! MD5 of several texts side by side: each is a chain of steps that wait for one another, and the lanes do not.

use std::array::from_fn;
use wide::u32x4;

/// How many texts are hashed at once.
pub const LANES: usize = 8;

const VECTORS: usize = LANES / 4;
const BLOCK: usize = 64;
const START: [u32; 4] = [0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476];
#[rustfmt::skip]
const SINES: [u32; 64] = [
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
];

type Vectors = [u32x4; VECTORS];

/// The first 64 bits of MD5 of texts, at most as many as there are lanes. The texts are padded in place.
pub fn hash(texts: &mut [Vec<u8>], hashes: &mut Vec<u8>) {
    texts.iter_mut().for_each(pad);
    let mut states: [[u32; LANES]; 4] = START.map(|word| [word; LANES]);
    let mut words = [[0; LANES]; 16];
    for start in (0..texts.iter().map(Vec::len).max().unwrap_or(0)).step_by(BLOCK) {
        for (lane, text) in texts.iter().enumerate() {
            let block = text.get(start..start + BLOCK).unwrap_or_default();
            for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
                word[lane] = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
        }
        let next = compress(&states, &words);
        for (state, next) in states.iter_mut().zip(next) {
            for (lane, text) in texts.iter().enumerate() {
                if start < text.len() {
                    state[lane] = next[lane];
                }
            }
        }
    }
    for (first, second) in states[0].iter().zip(states[1]).take(texts.len()) {
        hashes.extend(first.to_le_bytes());
        hashes.extend(second.to_le_bytes());
    }
}

fn pad(text: &mut Vec<u8>) {
    let bits = (text.len() as u64).wrapping_mul(8);
    text.push(0x80);
    text.resize((text.len() + 8).div_ceil(BLOCK) * BLOCK - 8, 0);
    text.extend(bits.to_le_bytes());
}

fn compress(states: &[[u32; LANES]; 4], words: &[[u32; LANES]; 16]) -> [[u32; LANES]; 4] {
    let before: [Vectors; 4] = from_fn(|word| vectors(&states[word]));
    let [mut a, mut b, mut c, mut d] = before;
    macro_rules! step {
        ($mix:expr, $a:ident, $b:ident, $c:ident, $d:ident, $word:expr, $sine:expr, $shift:expr) => {
            let word = vectors(&words[$word % 16]);
            $a = from_fn(|at| {
                let sum = $mix($b[at], $c[at], $d[at]) + $a[at] + word[at] + u32x4::splat(SINES[$sine]);
                ((sum << $shift) | (sum >> (32 - $shift))) + $b[at]
            });
        };
    }
    // Word `factor * step + first` in each step.
    macro_rules! round {
        ($round:expr, $mix:expr, $factor:expr, $first:expr, $shifts:expr) => {
            for step in [0, 4, 8, 12] {
                let (word, sine) = ($factor * step + $first, $round * 16 + step);
                step!($mix, a, b, c, d, word, sine, $shifts[0]);
                step!($mix, d, a, b, c, word + $factor, sine + 1, $shifts[1]);
                step!($mix, c, d, a, b, word + 2 * $factor, sine + 2, $shifts[2]);
                step!($mix, b, c, d, a, word + 3 * $factor, sine + 3, $shifts[3]);
            }
        };
    }
    round!(0, |b: u32x4, c: u32x4, d: u32x4| d ^ (b & (c ^ d)), 1, 0, [7u32, 12, 17, 22]);
    round!(1, |b: u32x4, c: u32x4, d: u32x4| c ^ (d & (b ^ c)), 5, 1, [5u32, 9, 14, 20]);
    round!(2, |b: u32x4, c: u32x4, d: u32x4| b ^ c ^ d, 3, 5, [4u32, 11, 16, 23]);
    round!(3, |b: u32x4, c: u32x4, d: u32x4| c ^ (b | (d ^ u32x4::splat(u32::MAX))), 7, 0, [6u32, 10, 15, 21]);
    let after = [a, b, c, d];
    from_fn(|word| {
        let sums: Vectors = from_fn(|at| before[word][at] + after[word][at]);
        from_fn(|lane| sums[lane / 4].as_array_ref()[lane % 4])
    })
}

#[inline(always)]
fn vectors(lanes: &[u32; LANES]) -> Vectors {
    from_fn(|at| u32x4::new([lanes[4 * at], lanes[4 * at + 1], lanes[4 * at + 2], lanes[4 * at + 3]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_other_lengths_side_by_side() {
        let long = b"12345678901234567890123456789012345678901234567890123456789012345678901234567890";
        let mut texts = [b"".to_vec(), b"abc".to_vec(), long.to_vec()];
        let mut found = Vec::new();
        hash(&mut texts, &mut found);
        let found: Vec<_> = found.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found.concat(), "d41d8cd98f00b204900150983cd24fb057edf4a22be3c955");
    }
}
