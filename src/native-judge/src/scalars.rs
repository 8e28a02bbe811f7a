//! Scalars as columns hold them: `lakeproof.judge.scalars` and `lakeproof.judge.times`, which say what fits, in Rust.

use crate::faults::Reason;
use crate::plan::Times;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
const FIRST_MICROSECOND: i64 = -719_162 * DAY; // 0001-01-01T00:00:00Z
const BEHIND_LAST_MICROSECOND: i64 = 2_932_897 * DAY; // 10000-01-01T00:00:00Z
/// A longer number may have an exponent that Python's decimals do not take; it is left to Python.
pub const MAX_DECIMAL: usize = 64;
/// Rust reads exponents up to some 655,000 only, which a number with as many digits may need.
pub const MAX_FLOAT: usize = 10_000;
const LONGEST_INTEGER: usize = 20; // -9223372036854775808
const LONGEST_EPOCH: usize = 18; // -62135596800000000
const POWERS: [i128; 39] = {
    let mut powers = [1; 39];
    let mut exponent = 1;
    while exponent < 39 {
        powers[exponent] = powers[exponent - 1] * 10;
        exponent += 1;
    }
    powers
};

/// Why a value does not fit: a code, and what was expected.
pub struct Unfit(pub Reason, pub String);

fn unfit<T>(reason: Reason, expected: impl Into<String>) -> Result<T, Unfit> {
    Err(Unfit(reason, expected.into()))
}

/// An integer of `bits` bits.
pub fn integer(token: &str, bits: u32) -> Result<i64, Unfit> {
    if token.len() <= LONGEST_INTEGER {
        if let Some(number) = token.parse::<i64>().ok().filter(|number| number >> (bits - 1) == number >> 63) {
            return Ok(number);
        }
    }
    unfit(Reason::OutOfRange, format!("a {bits}-bit integer"))
}

pub fn double(token: &str) -> Result<f64, Unfit> {
    match token.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => unfit(Reason::OutOfRange, "a number that fits in a double"),
    }
}

/// The nearest float; the number itself is what bounds are compared with.
pub fn float(token: &str) -> Result<(f32, f64), Unfit> {
    let number = double(token)?;
    match number as f32 {
        float if float.is_finite() => Ok((float, number)),
        _ => unfit(Reason::OutOfRange, "a number that fits in a float"),
    }
}

/// The number of units of the last decimal place.
pub fn decimal(token: &str, precision: u32, scale: u32) -> Result<i128, Unfit> {
    decimal_units(token, precision, scale).ok_or_else(|| {
        let before = precision as i64 - scale as i64;
        let expected = format!("a number with at most {before} digits before the decimal point and {scale} after it");
        Unfit(Reason::OutOfRange, expected)
    })
}

fn decimal_units(token: &str, precision: u32, scale: u32) -> Option<i128> {
    let (number, exponent) = token.split_once(['e', 'E']).unwrap_or((token, "0"));
    let is_negative = number.starts_with('-');
    let (whole, fraction) =
        number.trim_start_matches('-').split_once('.').unwrap_or((number.trim_start_matches('-'), ""));
    let mut digits = [0u8; MAX_DECIMAL];
    let mut count = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        if count > 0 || digit != b'0' {
            digits[count] = digit - b'0';
            count += 1;
        }
    }
    if count == 0 {
        return Some(0); // whatever its exponent
    }
    let mut shift = exponent.parse::<i64>().unwrap_or(if exponent.starts_with('-') { -(1 << 40) } else { 1 << 40 });
    shift = shift.clamp(-(1 << 40), 1 << 40) - fraction.len() as i64 + scale as i64;
    while shift < 0 && count > 0 && digits[count - 1] == 0 {
        count -= 1;
        shift += 1;
    }
    if shift < 0 || count as i64 + shift > precision as i64 {
        return None;
    }
    let units = digits[..count].iter().fold(0i128, |units, &digit| units * 10 + digit as i128) * POWERS[shift as usize];
    Some(if is_negative { -units } else { units })
}

/// Microseconds of a number of units since 1970.
pub fn epoch(token: &str, is_integer: bool, per_second: i64) -> Result<i64, Unfit> {
    let microseconds = if is_integer {
        let units = if token.len() <= LONGEST_EPOCH { token.parse::<i64>().ok() } else { None };
        units.and_then(|units| units.checked_mul(SECOND / per_second))
    } else if per_second == 1 {
        i64::try_from(decimal(token, 18, 6)?).ok()
    } else {
        let unit = if per_second == 1_000 { "milliseconds" } else { "microseconds" };
        return unfit(Reason::WrongType, format!("an integer, {unit} since 1970"));
    };
    in_range(microseconds)
}

fn in_range(microseconds: Option<i64>) -> Result<i64, Unfit> {
    match microseconds {
        Some(found) if (FIRST_MICROSECOND..BEHIND_LAST_MICROSECOND).contains(&found) => Ok(found),
        _ => unfit(Reason::OutOfRange, "a timestamp between the years 0001 and 9999 in UTC"),
    }
}

/// Days since 1970 of `yyyy-MM-dd`.
pub fn date(text: &str) -> Result<i32, Unfit> {
    let mut reader = Reader::new(text);
    let Some((year, month, day)) = reader.date().filter(|_| reader.is_done()) else {
        return unfit(Reason::WrongFormat, "an ISO 8601 date (YYYY-MM-DD)");
    };
    match days(year, month, day) {
        None => unfit(Reason::WrongFormat, "a valid calendar date"),
        Some(_) if year == 0 => unfit(Reason::OutOfRange, "a date between the years 0001 and 9999"),
        Some(found) => Ok(found as i32),
    }
}

/// Microseconds since 1970 of a timestamp in the form of its contract; without an offset it is in UTC.
pub fn timestamp(text: &str, times: &Times) -> Result<i64, Unfit> {
    let Some(parts) = Reader::new(text).timestamp(times) else {
        return unfit(Reason::WrongFormat, times.expected.as_str());
    };
    let Parts { date: (year, month, day), hour, minute, second, nanoseconds, offset: (sign, hours, minutes) } = parts;
    let day = days(year, month, day);
    let Some(day) = day.filter(|_| hour.max(hours) <= 23 && minute.max(second).max(minutes) <= 59) else {
        return unfit(Reason::WrongFormat, "a valid date and time");
    };
    if nanoseconds % 1_000 != 0 {
        return unfit(Reason::OutOfRange, "a timestamp with at most microsecond precision");
    }
    let offset = sign * (hours * 60 + minutes);
    let seconds = (hour * 60 + minute - offset) * 60 + second;
    in_range(Some(day * DAY + seconds * SECOND + nanoseconds / 1_000))
}

/// Days since 1970; None for a day that is not in the calendar. The year 0 is a leap year.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(is_leap),
        _ => return None,
    };
    if !(1..=longest).contains(&day) {
        return None;
    }
    // Days of the civil calendar with years from March on: https://howardhinnant.github.io/date_algorithms.html
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468)
}

struct Parts {
    date: (i64, i64, i64),
    hour: i64,
    minute: i64,
    second: i64,
    nanoseconds: i64,
    offset: (i64, i64, i64),
}

/// Reads a text from left to right.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Reader { bytes: text.as_bytes(), at: 0 }
    }

    fn is_done(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.bytes.get(self.at) == Some(&byte)).then(|| self.at += 1)
    }

    fn number(&mut self, digits: usize) -> Option<i64> {
        let found = self.bytes.get(self.at..self.at + digits)?;
        let mut number = 0;
        for &digit in found {
            if !digit.is_ascii_digit() {
                return None;
            }
            number = number * 10 + i64::from(digit - b'0');
        }
        self.at += digits;
        Some(number)
    }

    fn date(&mut self) -> Option<(i64, i64, i64)> {
        let year = self.number(4)?;
        self.take(b'-')?;
        let month = self.number(2)?;
        self.take(b'-')?;
        Some((year, month, self.number(2)?))
    }

    fn timestamp(mut self, times: &Times) -> Option<Parts> {
        let date = self.date()?;
        let mut parts = Parts { date, hour: 0, minute: 0, second: 0, nanoseconds: 0, offset: (1, 0, 0) };
        if let Some(separator) = times.separator {
            self.take(separator as u8)?;
            parts.hour = self.number(2)?;
            self.take(b':')?;
            parts.minute = self.number(2)?;
            if self.take(b':').is_some() {
                parts.second = self.number(2)?;
                if self.take(b'.').is_some() {
                    parts.nanoseconds = self.fraction()?;
                }
            }
            let may_end = self.is_done() && !times.needs_offset;
            if times.takes_offset && !may_end {
                parts.offset = self.offset()?;
            }
        }
        self.is_done().then_some(parts)
    }

    /// One to nine decimal places, in nanoseconds.
    fn fraction(&mut self) -> Option<i64> {
        let digits = self.bytes[self.at..].iter().take(9).take_while(|byte| byte.is_ascii_digit()).count();
        let fraction = if digits > 0 { self.number(digits)? } else { return None };
        Some(fraction * 10_i64.pow(9 - digits as u32))
    }

    /// `Z`, or hours and maybe minutes.
    fn offset(&mut self) -> Option<(i64, i64, i64)> {
        if self.take(b'Z').is_some() {
            return Some((1, 0, 0));
        }
        let sign = if self.take(b'-').is_some() { -1 } else { self.take(b'+').map(|()| 1)? };
        let hours = self.number(2)?;
        if self.is_done() {
            return Some((sign, hours, 0));
        }
        let _ = self.take(b':');
        Some((sign, hours, self.number(2)?))
    }
}
