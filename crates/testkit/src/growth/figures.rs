//! The measured figures that drive the model, each with the place where it was measured. There is no other number about
//! hardware or software in it; what is assumed says so.

/// A figure with its origin.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    /// In the unit.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// Where it was measured; "assumed" if it was not.
    pub from: &'static str,
}

macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident = $value:expr, $unit:literal, $from:literal;)*) => {
        /// All figures of a node and of the network between nodes.
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub struct Figures { $($(#[$doc])* pub $name: Figure,)* }

        impl Figures {
            /// Those of the machine on which `docs/performance.md` was measured: every node is such a machine.
            pub fn measured() -> Self {
                Self { $($name: Figure { value: $value, unit: $unit, from: $from },)* }
            }
            /// All of them, by name.
            pub fn all(&self) -> Vec<(&'static str, Figure)> {
                vec![$((stringify!($name), self.$name),)*]
            }
            /// Sets one by its name; false if there is none.
            pub fn set(&mut self, name: &str, value: f64) -> bool {
                match name {
                    $(stringify!($name) => self.$name.value = value,)*
                    _ => return false,
                }
                true
            }
        }
    };
}

figures! {
    /// Processors of a node.
    cores = 2.0, "", "the machine of performance.md; clients and threads of the daemon share them";
    /// Threads of a daemon that forward to other nodes and from them.
    net_threads = 1.0, "", "nodes.md: one thread does all forwarding";
    /// From the end of a message's sending to the begin of its receiving.
    wire_us = 5.0, "µs", "assumed: a switch and two cables";
    /// Each direction of a node's network card.
    nic_gb_s = 3.1, "GB/s", "assumed: 25 Gbit/s";
    /// Nodes behind one switch, which are lost together.
    rack_nodes = 40.0, "", "assumed";
    /// What a rack's nodes can send together, over what leaves the rack.
    oversubscription = 4.0, "", "assumed";
    /// Waking a thread that sleeps.
    wake_us = 30.5, "µs", "namespaces: 64 bytes there and back 67 µs sleeping, 6.0 spinning; two wakes";
    /// How long a thread spins before it sleeps.
    spin_us = 18.0, "µs", "ARCHITECTURE.md, Processes";
    /// Sending or receiving one message among many.
    message_us = 0.8, "µs", "performance.md, Connections: 630 thousand a second, each end receives and sends one";
    /// A system call that sends to a peer or receives from it.
    syscall_us = 1.5, "µs", "namespaces: 6.0 µs there and back without a wake are four of them";
    /// Each turn of the forwarding thread, for each of its connections: it asks the system about all of them.
    poll_ns = 60.0, "ns", "`poll` of 1,000 to 9,000 sockets, by Python: 49 to 75 ns each (nodes/thread.rs asks so each turn)";
    /// Bytes through the protocol with its checksums, one thread at each end.
    tcp_gb_s = 2.2, "GB/s", "performance.md, Connections: get of 1 MiB, 4 under way";
    /// A copy in memory, one core.
    copy_gb_s = 7.5, "GB/s", "building blocks: memcpy at 1 MiB";
    /// A copy with its checksum.
    copy_sum_gb_s = 6.5, "GB/s", "building blocks: copy fused with CRC-32C";
    /// A disk's reading.
    nvme_read_gb_s = 1.9, "GB/s", "building blocks: direct I/O, 1.6 to 2.2";
    /// A disk's writing.
    nvme_write_gb_s = 2.9, "GB/s", "building blocks: direct I/O, 2.5 to 3.3";
    /// Parity of 4+2, by bytes of data.
    encode_gb_s = 19.7, "GB/s", "building blocks: ISA-L; `layout --example coding` has its speed";
    /// Rebuilding one part of 4+2, by bytes of data.
    decode_gb_s = 19.8, "GB/s", "building blocks: ISA-L";
    /// A get of 4 KiB whose map is known, with its copy.
    get_us = 0.69, "µs", "performance.md, Figures: store.get_4k, 0.90 of 1.62 million a second";
    /// A pipelined put of 4 KiB, the client's part.
    put_client_us = 1.32, "µs", "performance.md: store.put_4k at 665,000 a second, client 44% of both cores";
    /// The same, the engine's part: a change of a map and its record.
    put_engine_us = 1.11, "µs", "the same: 37% of both cores";
    /// Creation of an object, the client's part.
    create_client_us = 1.2, "µs", "performance.md, Figures: store.create, 835,000 a second: at most this";
    /// The same, the engine's part.
    create_engine_us = 1.2, "µs", "the same";
    /// Creation of a file in a strict directory, the client's part.
    file_client_us = 8.2, "µs", "performance.md, Names: own directory, made, processor time";
    /// The same, the engine's part.
    file_engine_us = 5.5, "µs", "the same";
    /// A look-up of a map or a word that the client lacks, at the home.
    lookup_us = 1.2, "µs", "assumed: as a creation";
    /// A journal record of a creation.
    create_record_bytes = 72.0, "bytes", "format.md, Journal";
    /// A journal record of a write of up to 64 KiB.
    write_record_bytes = 104.0, "bytes", "format.md, Journal";
    /// A request or an answer without bytes of objects.
    request_bytes = 96.0, "bytes", "format.md: head of a frame and a short request";
    /// The part of a busy node's time that repair may take.
    move_share = 0.2, "", "roadmap.md: a fifth of a busy store's time for moves";
    /// Opening a home, for each object in it.
    open_us = 2.65, "µs", "performance.md, Figures: store.open_1m, 0.53 of 5 s a million";
    /// Two rings of a client to a home.
    ring_bytes = 524_288.0, "bytes", "nodes.md: the price of a link";
    /// What a connection may have under way towards a node.
    window_bytes = 54_525_952.0, "bytes", "nodes.md: windows of 4, 16 and 32 MiB";
    /// What a decision of `ha` takes, for each member.
    decide_ns = 290.0, "ns", "`ha --example large`, 10,000 nodes at rest: 2.9 ms";
    /// What it takes to record an answer of the register, for each sign of life in it.
    record_ns = 300.0, "ns", "the same: 3.0 ms an answer";
    /// A node's sign of life in an answer of the register.
    sign_bytes = 6.0, "bytes", "assumed: number and age; no daemon sends it yet";
    /// Finding and writing that, for each node.
    sign_ns = 10.0, "ns", "assumed";
    /// Operations on one key of etcd.
    etcd_ops_s = 4400.0, "1/s", "etcd 3.4 alone, synced, `etcdctl check perf` beside builds: 4,316 and 4,474 writes a second";
    /// Operations that change one object of RADOS.
    rados_ops_s = 660.0, "1/s", "many nodes: 660 appends a second an object, whatever their size";
    /// Time between failures of one node.
    failure_years = 5.0, "years", "assumed";
    /// Time between failures of a rack as a whole.
    rack_years = 10.0, "years", "assumed";
}

impl Figures {
    /// Nanoseconds for so many bytes at a figure in GB/s (bytes a nanosecond).
    pub fn ns_of(bytes: u64, gb_s: Figure) -> f64 {
        bytes as f64 / gb_s.value.max(f64::MIN_POSITIVE)
    }
    /// Nanoseconds of a figure in µs.
    pub fn ns(us: Figure) -> f64 {
        us.value * 1e3
    }
    /// Nanoseconds that one end of a message of so many bytes needs, without its system call.
    pub fn message_ns(&self, bytes: u64) -> f64 {
        Self::ns(self.message_us) + Self::ns_of(bytes, self.tcp_gb_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_an_origin_and_can_be_set() {
        let mut figures = Figures::measured();
        for (name, figure) in figures.all() {
            assert!(figure.value > 0.0 && figure.from.len() > 6, "{name}");
            assert!(figures.set(name, 7.0), "{name}");
        }
        assert!(figures.all().iter().all(|(_, figure)| figure.value.to_bits() == 7.0_f64.to_bits()));
        assert!(!figures.set("speed_of_light", 1.0));
        assert!((Figures::ns_of(2_200, Figures::measured().tcp_gb_s) - 1000.0).abs() < 1e-9, "2,200 bytes at 2.2 GB/s");
    }
}
