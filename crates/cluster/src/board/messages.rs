//! Beats and notices as bytes. Whoever carries them knows nothing of them.

use cenote_codec::{Decoder, Encode as _, Subject};
use cenote_ha::{ClusterId, Cost, Hello, HomeId, Identity, Report, Room};
use cenote_model::{DeviceId, Error, ErrorKind, NodeId, Result};

use super::{Beat, Notice};
use crate::register::{put_error, put_held, take_error, take_held};

/// First byte of each message.
const MESSAGE_VERSION: u8 = 8;

const NOTICE: u8 = 1;
const FAILED: u8 = 2;

const UNHEARD: u8 = 1;
const REFUSED: u8 = 2;
const GOODBYE: u8 = 3;
const PAID: u8 = 4;
const CLOSING: u8 = 5;
const LOST: u8 = 6;
const ROOM: u8 = 7;
const COST: u8 = 8;

/// Fewest bytes of what lists hold: bound what a count can make the decoder allocate.
const REPORT_BYTES_MIN: usize = 1;
const NUMBER_BYTES: usize = 2 + 8;
const REPORTS_BYTES_MIN: usize = 2 + 8 + 4;
const HELLO_BYTES_MIN: usize = 16 + 16 + 4 + 8 + 8 + 4 + 4;
const DEVICE_BYTES: usize = 2;

/// What errors of decoding are about.
struct Message;

impl Subject for Message {
    type Error = Error;
    fn malformed(&self, why: &'static str) -> Error {
        Error::new(ErrorKind::InvalidInput, "a sign of life, or the answer to one")
            .because(why)
            .try_next("run the same version of Cenote on all nodes")
    }
}

type Input<'a> = Decoder<'a, Message>;

/// The message behind its version.
fn open(bytes: &[u8]) -> Result<Input<'_>> {
    let mut from: Input<'_> = Decoder::of(Message, bytes);
    match from.u8()? {
        MESSAGE_VERSION => Ok(from),
        version => Err(Error::new(ErrorKind::VersionMismatch, "a sign of life, or the answer to one")
            .because(format!("it has version {version}, this program reads {MESSAGE_VERSION}"))
            .try_next("run the same version of Cenote on all nodes")),
    }
}

impl Beat {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![MESSAGE_VERSION];
        out.put_u16(self.node.0);
        out.put_u64(self.incarnation);
        out.put_u64(self.number);
        out.put_u64(self.holds_view);
        put_reports(&self.reports, &mut out);
        out.put_u64(self.weights);
        out.put_u8(u8::from(self.hello.is_some()));
        if let Some(hello) = &self.hello {
            put_hello(hello, &mut out);
        }
        out
    }
    /// From bytes that anybody may have sent.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = open(bytes)?;
        let beat = Self {
            node: NodeId(from.u16()?),
            incarnation: from.u64()?,
            number: from.u64()?,
            holds_view: from.u64()?,
            reports: take_reports(&mut from)?,
            weights: from.u64()?,
            hello: if from.flag()? { Some(take_hello(&mut from)?) } else { None },
        };
        from.end().map(|()| beat)
    }
}

impl Notice {
    /// As bytes; or why there is none.
    pub fn encode(notice: Result<&Self>) -> Vec<u8> {
        let mut out = vec![MESSAGE_VERSION];
        match notice {
            Ok(notice) => notice.put(&mut out),
            Err(error) => put_error(FAILED, &error, &mut out),
        }
        out
    }
    fn put(&self, out: &mut Vec<u8>) {
        put_held(NOTICE, self.held.as_ref(), out);
        out.put_u64(self.view);
        for numbers in [&self.heard, &self.heard_elsewhere, &self.weights] {
            out.put_u32(numbers.len() as u32);
            for (node, number) in numbers {
                out.put_u16(node.0);
                out.put_u64(*number);
            }
        }
        out.put_u32(self.reports.len() as u32);
        for (node, in_view, reports) in &self.reports {
            out.put_u16(node.0);
            out.put_u64(*in_view);
            put_reports(reports, out);
        }
        out.put_u32(self.hellos.len() as u32);
        for (node, hello) in &self.hellos {
            out.put_u16(node.0);
            put_hello(hello, out);
        }
    }
    /// From bytes that anybody may have sent. Fails with the error, too, if they say why there is none.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = open(bytes)?;
        let notice = match from.u8()? {
            NOTICE => Self::take(&mut from)?,
            FAILED => {
                let error = take_error(&mut from)?;
                return from.end().and(Err(error));
            }
            _ => return Err(from.malformed("an unknown answer")),
        };
        from.end().map(|()| notice)
    }
    fn take(from: &mut Input<'_>) -> Result<Self> {
        let (held, view) = (take_held(from)?, from.u64()?);
        if held.as_ref().is_some_and(|(held, _)| held.number != view) {
            return Err(from.malformed("two numbers of its view"));
        }
        let (heard, heard_elsewhere) = (take_numbers(from)?, take_numbers(from)?);
        let weights = take_numbers(from)?;
        let count = from.count(REPORTS_BYTES_MIN)?;
        let reports = (0..count).map(|_| Ok((NodeId(from.u16()?), from.u64()?, take_reports(from)?)));
        let reports = reports.collect::<Result<_>>()?;
        let count = from.count(2 + HELLO_BYTES_MIN)?;
        let hellos = (0..count).map(|_| Ok((NodeId(from.u16()?), take_hello(from)?))).collect::<Result<_>>()?;
        Ok(Self { view, held, heard, heard_elsewhere, reports, weights, hellos })
    }
}

/// A number of each node.
fn take_numbers(from: &mut Input<'_>) -> Result<Vec<(NodeId, u64)>> {
    let count = from.count(NUMBER_BYTES)?;
    (0..count).map(|_| Ok((NodeId(from.u16()?), from.u64()?))).collect()
}

fn put_reports(reports: &[Report], out: &mut Vec<u8>) {
    out.put_u32(reports.len() as u32);
    for report in reports {
        match report {
            Report::Unheard(node) => {
                out.put_u8(UNHEARD);
                out.put_u16(node.0);
            }
            Report::Refused(node) => {
                out.put_u8(REFUSED);
                out.put_u16(node.0);
            }
            Report::Goodbye { is_empty } => {
                out.put_u8(GOODBYE);
                out.put_u8(u8::from(*is_empty));
            }
            Report::Closing => out.put_u8(CLOSING),
            Report::Lost(home) => {
                out.put_u8(LOST);
                out.put_u16(home.0);
            }
            Report::Paid { home, node, since_view } => {
                out.put_u8(PAID);
                out.put_u16(home.0);
                out.put_u16(node.0);
                out.put_u64(*since_view);
            }
            Report::Room(room) => {
                out.put_u8(ROOM);
                out.put_u64(room.memory);
                out.put_u64(room.disk);
            }
            Report::Cost { home, cost } => {
                out.put_u8(COST);
                out.put_u16(home.0);
                out.put_u64(cost.memory);
                out.put_u64(cost.disk);
                out.put_u64(cost.written);
            }
        }
    }
}

fn take_reports(from: &mut Input<'_>) -> Result<Vec<Report>> {
    let count = from.count(REPORT_BYTES_MIN)?;
    (0..count).map(|_| take_report(from)).collect()
}

fn take_report(from: &mut Input<'_>) -> Result<Report> {
    Ok(match from.u8()? {
        UNHEARD => Report::Unheard(NodeId(from.u16()?)),
        REFUSED => Report::Refused(NodeId(from.u16()?)),
        GOODBYE => Report::Goodbye { is_empty: from.flag()? },
        CLOSING => Report::Closing,
        LOST => Report::Lost(HomeId(from.u16()?)),
        PAID => Report::Paid { home: HomeId(from.u16()?), node: NodeId(from.u16()?), since_view: from.u64()? },
        ROOM => Report::Room(Room { memory: from.u64()?, disk: from.u64()? }),
        COST => Report::Cost {
            home: HomeId(from.u16()?),
            cost: Cost { memory: from.u64()?, disk: from.u64()?, written: from.u64()? },
        },
        _ => return Err(from.malformed("an unknown report")),
    })
}

fn put_hello(hello: &Hello, out: &mut Vec<u8>) {
    out.put_u128(hello.cluster.0);
    out.put_u128(hello.identity.0);
    out.put_bytes(hello.address.as_bytes());
    out.put_u64(hello.left_in_view);
    out.put_u64(hello.holds_view);
    for devices in [&hello.devices, &hello.lost_devices] {
        out.put_u32(devices.len() as u32);
        for device in devices {
            out.put_u16(device.0);
        }
    }
}

fn take_hello(from: &mut Input<'_>) -> Result<Hello> {
    Ok(Hello {
        cluster: ClusterId(from.u128()?),
        identity: Identity(from.u128()?),
        address: from.text()?,
        left_in_view: from.u64()?,
        holds_view: from.u64()?,
        devices: take_devices(from)?,
        lost_devices: take_devices(from)?,
    })
}

fn take_devices(from: &mut Input<'_>) -> Result<Vec<DeviceId>> {
    let count = from.count(DEVICE_BYTES)?;
    (0..count).map(|_| from.u16().map(DeviceId)).collect()
}
