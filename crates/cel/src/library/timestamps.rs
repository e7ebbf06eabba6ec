//! Functions of timestamps and durations. The default time zone is UTC.

use std::num::IntErrorKind;

use super::standard::{Computed, no_such_overload};
use crate::EvalError;
use crate::evaluate::Evaluation;
use crate::function::{Apply, Overload};
use crate::go_format::Quoted;
use crate::program::Call;
use crate::types::Type;
use crate::value::{Timestamp, Value, missing_zone, zone_offset};

pub(crate) fn functions() -> Vec<Overload> {
    let mut all = Vec::new();
    let parts: [(&'static str, Apply); 10] = [
        ("getFullYear", year),
        ("getMonth", month),
        ("getDayOfYear", day_of_year),
        ("getDayOfMonth", day_of_month),
        ("getDate", date),
        ("getDayOfWeek", day_of_week),
        ("getHours", hours),
        ("getMinutes", minutes),
        ("getSeconds", seconds),
        ("getMilliseconds", milliseconds),
    ];
    for (name, apply) in parts {
        all.push(Overload::member(
            "timestamp_part",
            name,
            [Type::Timestamp],
            Type::Int,
            apply,
        ));
        all.push(Overload::member(
            "zone_part",
            name,
            [Type::Timestamp, Type::String],
            Type::Int,
            apply,
        ));
    }
    for (name, apply) in parts.into_iter().skip(6) {
        all.push(Overload::member(
            "duration_part",
            name,
            [Type::Duration],
            Type::Int,
            apply,
        ));
    }
    all
}

/// The timestamp, and the offset of the time zone in seconds east of UTC.
fn local(arguments: &[Value<'_>]) -> Result<(Timestamp, i64), EvalError> {
    match arguments {
        [Value::Timestamp(time)] => Ok((*time, 0)),
        [Value::Timestamp(time), Value::String(zone)] => Ok((*time, offset(zone, *time)?)),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// The offset of a zone given by its name, or as `+05:30` or `-08:00`. `Local` is not supported, so
/// that no decision depends on the machine.
fn offset(zone: &str, time: Timestamp) -> Result<i64, EvalError> {
    if matches!(zone, "" | "UTC") {
        return Ok(0);
    }
    let Some((hours, minutes)) = zone.split_once(':') else {
        return zone_offset(zone, time.seconds()).ok_or_else(|| EvalError::failed(missing_zone(zone)));
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let minutes = if zone.starts_with('-') { -minutes } else { minutes };
    Ok((hours * 60 + minutes) * 60)
}

/// Parses like `strconv.Atoi`, but only 32 bits.
fn number(text: &str) -> Result<i64, EvalError> {
    let number: Result<i32, _> = text.parse();
    number.map(i64::from).map_err(|error| {
        let reason = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        EvalError::failed(format_args!("strconv.Atoi: parsing {}: {reason}", Quoted(text)))
    })
}

fn part<'a>(arguments: &[Value<'a>], part: impl FnOnce(crate::value::CivilTime) -> i64) -> Computed<'a> {
    let (time, offset) = local(arguments)?;
    Ok(Value::Int(part(time.civil(offset))))
}

/// A part of a timestamp, or a duration in whole units of `unit` nanoseconds. As in Go, it is
/// computed as a double, which may round up.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "as Go computes it"
)]
fn clock<'a>(
    arguments: &[Value<'a>],
    unit: i64,
    of: impl FnOnce(crate::value::CivilTime) -> i64,
) -> Computed<'a> {
    match arguments {
        [Value::Duration(duration)] => {
            let length = duration.nanoseconds();
            let units = (length / unit) as f64 + (length % unit) as f64 / unit as f64;
            Ok(Value::Int(units as i64))
        }
        arguments => part(arguments, of),
    }
}

fn year<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    part(arguments, |time| time.year)
}

fn month<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    part(arguments, |time| time.month - 1)
}

fn day_of_year<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    part(arguments, |time| time.day_of_year)
}

fn day_of_month<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    part(arguments, |time| time.day - 1)
}

fn date<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    part(arguments, |time| time.day)
}

fn day_of_week<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    part(arguments, |time| time.weekday)
}

fn hours<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    clock(arguments, 3_600_000_000_000, |time| time.hour)
}

fn minutes<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    clock(arguments, 60_000_000_000, |time| time.minute)
}

fn seconds<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    clock(arguments, 1_000_000_000, |time| time.second)
}

fn milliseconds<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Duration(duration)] => Ok(Value::Int(duration.nanoseconds() / 1_000_000)),
        [Value::Timestamp(time), ..] => {
            local(arguments)?;
            Ok(Value::Int(i64::from(time.nanoseconds() / 1_000_000)))
        }
        _ => no_such_overload(),
    }
}
