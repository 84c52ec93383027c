//! `top`: the store at work, on a terminal, once as a table, as JSON, or in a browser.

mod frame;
mod rows;
mod screen;

use std::io::IsTerminal;
use std::thread::sleep;
use std::time::Duration;

use cenote::model::Telemetry;
use cenote::{OpenOptions, Store};
use cenote_telemetry::Rates;
use serde_json::Value;

use super::{Context, web};
use crate::args::{SortArg, TopArgs};
use crate::failure::Done;
use crate::out::Out;

/// Number of hot objects requested.
const HOT: u32 = 100;

/// Two states of a store, and what happened in between.
pub struct Look {
    pub before: Option<Telemetry>,
    pub now: Telemetry,
    pub rates: Rates,
}

impl Look {
    /// Reads the first state, or the next one after `before`.
    fn at(store: &Store, before: Option<Telemetry>) -> cenote::Result<Self> {
        let now = store.telemetry(HOT)?;
        Ok(Self { rates: Rates::between(before.as_ref(), &now), before, now })
    }
}

pub fn top(context: &mut Context<'_>, args: &TopArgs) -> Done {
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => context.dir()?,
    };
    if args.web
        && let Some(url) = web::address_of_daemon(&dir)
    {
        return context.out.line(url);
    }
    let options = OpenOptions { mode: context.mode(), read_only: true, ..OpenOptions::default() };
    let store = Store::open_with(&dir, &options)?;
    if args.web {
        return serve_page(context.out, store, args);
    }
    let pause = Duration::from_secs_f64(args.interval);
    let is_plain = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    if !args.once && !context.out.json && std::io::stdout().is_terminal() && !is_plain {
        return screen::run(&store, pause, args.sort);
    }
    let first = Look::at(&store, None)?;
    sleep(pause);
    let look = Look::at(&store, Some(first.now))?;
    if context.out.json {
        return context.out.document(&document(&store, &look));
    }
    once(context.out, &look, args.sort)
}

/// Serves the page until stopped.
fn serve_page(out: &mut Out, store: Store, args: &TopArgs) -> Done {
    let web = web::of_store(store, args.http)?;
    out.line(web.url())?;
    out.flush()?;
    loop {
        sleep(Duration::from_hours(1)); // until a signal ends this process
    }
}

/// Prints tables for people and for line-oriented tools.
fn once(out: &mut Out, look: &Look, sort: SortArg) -> Done {
    out.line(rows::title(look))?;
    out.line("")?;
    out.table(&rows::TIER_TITLES, &rows::tiers(look, &rows::Marks::ascii()))?;
    out.line("")?;
    out.table(&rows::FLOW_TITLES, &rows::flows(look, &rows::Marks::ascii()))?;
    out.line("")?;
    out.table(&rows::HOT_TITLES, &rows::hot(look, sort))?;
    out.line("")?;
    out.table(&rows::CLIENT_TITLES, &rows::clients(look, sort))?;
    out.line("")?;
    out.table(&rows::LATENCY_TITLES, &rows::latencies(look))
}

/// Converts the store's telemetry, with rates.
fn document(store: &Store, look: &Look) -> Value {
    let mut document = cenote_telemetry::json(store.id(), &look.now);
    document["seconds"] = look.rates.seconds.into();
    document["requests_per_s"] = look.rates.requests_per_s.into();
    let flows = document["flows"].as_array_mut().into_iter().flatten();
    for (value, flow) in flows.zip(&look.now.flows) {
        let same =
            |rate: &&cenote_telemetry::FlowRate| (rate.from, rate.to, rate.why) == (flow.from, flow.to, flow.why);
        if let Some(rate) = look.rates.flows.iter().find(same) {
            value["bytes_per_s"] = rate.bytes_per_s.into();
            value["operations_per_s"] = rate.operations_per_s.into();
        }
    }
    let clients = document["clients"].as_array_mut().into_iter().flatten();
    for (value, client) in clients.zip(&look.now.clients) {
        let (written, read, requests) = look.rates.clients.get(&client.session).copied().unwrap_or_default();
        value["written_bytes_per_s"] = written.into();
        value["read_bytes_per_s"] = read.into();
        value["requests_per_s"] = requests.into();
    }
    document
}
