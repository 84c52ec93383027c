//! Random answers of stores.

use cenote_model::*;

use super::Random;

impl Random {
    pub fn response(&mut self) -> Response {
        let codes = [KeyCode::Ok, KeyCode::NotFound, KeyCode::Exists, KeyCode::Invalid, KeyCode::Limit];
        match self.below(27) {
            0 => Response::Applied {
                epoch: self.next(),
                codes: self.list(9, |r| codes[r.below(5) as usize]),
                words: self.list(9, |r| (r.next(), r.next())),
                created: self.option(|r| ContainerId(r.next())),
            },
            1 => Response::Lookup(self.map()),
            2 => Response::Stat(self.stat()),
            3 => Response::Objects(self.list(9, |r| ObjectId(r.wide()))),
            4 => Response::Values(self.list(9, |r| r.option(|r| (r.bytes(), r.next())))),
            5 => Response::Records {
                records: self.list(9, |r| (r.bytes(), r.bytes())).into_iter().collect(),
                more: self.flag(),
            },
            6 => Response::Exists(self.flag()),
            7 => Response::Indices(self.list(9, |r| IndexId(r.wide()))),
            8 => Response::Container(self.info()),
            9 => Response::Containers(self.list(4, Self::info)),
            10 => Response::Lease(Lease { runs: self.list(9, Self::run) }),
            11 => Response::Devices(self.list(4, Self::device)),
            12 => Response::Device(DeviceId(self.next() as u16)),
            13 => Response::Explanation(Explanation {
                stat: self.stat(),
                ranges: self.list(5, |r| ExtentWhy {
                    offset: r.next(),
                    extent: r.extent(),
                    device: r.text(),
                    why: r.text(),
                }),
                notes: self.list(3, Self::text),
            }),
            14 => Response::Verified(VerifyReport {
                objects: self.next(),
                bytes: self.next(),
                findings: self.list(5, |r| Finding {
                    key: r.key(),
                    offset: r.next(),
                    len: r.next(),
                    device: r.text(),
                    what: r.text(),
                }),
                contradictions: self.list(3, Self::text),
            }),
            15 => Response::Stats(StoreStats {
                epoch: self.next(),
                values_away_bytes: self.next(),
                ..StoreStats::default()
            }),
            23 => Response::Habit(self.list(9, |r| r.next() as u8)),
            16 => Response::Done,
            17 => Response::Snapshots(self.list(4, Self::snapshot)),
            18 => Response::Profile(Profile { unix_ms: self.next(), points: self.list(9, Self::point) }),
            19 => Response::Telemetry(Box::new(self.telemetry())),
            20 => Response::Arranged(Box::new(Arrangement {
                moves: self.list(3, |r| ArrangeMove {
                    key: r.key(),
                    offset: r.next(),
                    bytes: r.next(),
                    from: r.text(),
                    to: r.text(),
                    cost_ns: r.next(),
                    why: r.text(),
                }),
                ranges: self.next(),
                bytes: self.next(),
                moved_bytes: self.next(),
                cost_ns: self.next(),
                staying_bytes: self.next(),
                staying_why: self.text(),
                already_bytes: self.next(),
                pinned_bytes: self.next(),
                objects: self.next(),
            })),
            21 => Response::Policy(Box::new(self.policy())),
            22 => Response::Progress(self.list(3, |r| ArrangeProgress {
                number: r.next(),
                what: r.text(),
                done_bytes: r.next(),
                found_bytes: r.next(),
                elapsed_ns: r.next(),
            })),
            25 => Response::Weights(self.weights()),
            24 => Response::Content(Box::new(ContainerContent {
                info: self.info(),
                indices: self.list(3, |r| IndexContent {
                    id: IndexId(r.wide()),
                    version: r.next(),
                    records: r.list(9, |r| (r.bytes(), r.bytes())).into_iter().collect(),
                    more: r.flag(),
                }),
                maps: self.list(3, |r| (ObjectId(r.wide()), r.map())),
            })),
            _ => Response::Failed(
                Error::new(ErrorKind::from_code(1 + self.below(14) as u8).unwrap(), self.text())
                    .because(self.text())
                    .try_next(self.text()),
            ),
        }
    }
    fn tier(&mut self) -> DeviceId {
        DeviceId(self.next() as u16)
    }
    fn end(&mut self) -> FlowEnd {
        match self.below(3) {
            0 => FlowEnd::Client,
            1 => FlowEnd::Engine,
            _ => FlowEnd::Tier(self.tier()),
        }
    }
    fn heat(&mut self) -> HeatRow {
        HeatRow {
            tier: self.tier(),
            bytes: std::array::from_fn(|_| self.next()),
            objects: std::array::from_fn(|_| self.next()),
        }
    }
    fn client(&mut self) -> ClientTelemetry {
        ClientTelemetry {
            session: self.next(),
            pid: self.next() as u32,
            uid: self.next() as u32,
            program: self.text(),
            write: self.flag(),
            written_bytes: self.next(),
            writes: self.next(),
            read_bytes: self.next(),
            reads: self.next(),
            requests: self.next(),
            leased_bytes: self.next(),
        }
    }
    fn latency(&mut self) -> Latency {
        let counts: Vec<u64> = (0..HISTOGRAM_BUCKETS).map(|_| if self.flag() { self.next() } else { 0 }).collect();
        Latency {
            what: Timed::ALL[self.below(Timed::ALL.len() as u64) as usize],
            histogram: Histogram::from_counts(counts, self.next()),
            tier: self.option(Self::tier),
            sampled_in: self.next() as u32,
        }
    }
    pub fn telemetry(&mut self) -> Telemetry {
        Telemetry {
            uptime_ns: self.next(),
            unix_ms: self.next(),
            enabled: self.flag(),
            stats: StoreStats { epoch: self.next(), ..StoreStats::default() },
            devices: self.list(3, Self::device),
            flows: self.list(5, |r| Flow {
                from: r.end(),
                to: r.end(),
                why: FlowWhy::ALL[r.below(FlowWhy::ALL.len() as u64) as usize],
                bytes: r.next(),
                operations: r.next(),
            }),
            hot: self.list(3, |r| HotObject {
                key: r.key(),
                label: r.text(),
                size: r.next(),
                score: r.next(),
                idle_ms: r.next(),
                tiers: r.list(3, |r| (r.tier(), r.next())),
            }),
            heat: self.list(3, Self::heat),
            clients: self.list(3, Self::client),
            users: self.list(3, |r| UserTelemetry {
                uid: r.next() as u32,
                weight: r.next() as u16,
                taken: r.list(3, |r| (r.tier(), r.next())),
            }),
            containers: self.list(3, |r| ContainerTelemetry {
                id: ContainerId(r.next()),
                label: r.text(),
                objects: r.next(),
                stored_bytes: r.next(),
                quota_bytes: r.next(),
                share_permille: r.next() as u16,
            }),
            latencies: self.list(3, Self::latency),
            counts: Counts { requests: self.next(), stalls: self.next(), ..Counts::default() },
        }
    }
    fn weights(&mut self) -> UserWeights {
        UserWeights {
            version: self.next(),
            users: self.list(4, |r| UserWeight { uid: r.next() as u32, weight: r.next() as u16 }),
        }
    }
    pub fn weights_ask(&mut self) -> WeightsAsk {
        match self.below(3) {
            0 => WeightsAsk::Show,
            1 => WeightsAsk::Set(UserWeight { uid: self.next() as u32, weight: self.next() as u16 }),
            _ => WeightsAsk::Follow(self.weights()),
        }
    }
}
