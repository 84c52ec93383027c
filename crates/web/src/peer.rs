//! The owner of a connection. Everybody on a machine can reach its loopback address; the kernel knows which user
//! did.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

/// State of an open connection in the kernel's table.
const ESTABLISHED: &str = "01";

/// The user at the other end (`from`) of a connection to `local`, both on this machine.
pub fn uid_of(from: SocketAddr, local: SocketAddr) -> Option<u32> {
    let table = if from.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
    find(&std::fs::read_to_string(table).ok()?, from, local)
}

fn find(table: &str, from: SocketAddr, local: SocketAddr) -> Option<u32> {
    let (from, local) = (as_kernel_writes(from), as_kernel_writes(local));
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let here = fields.next()? == from && fields.next()? == local && fields.next()? == ESTABLISHED;
        if here { fields.nth(3)?.parse().ok() } else { None }
    })
}

/// The address in the kernel's format: words in this machine's byte order, then the port.
fn as_kernel_writes(address: SocketAddr) -> String {
    let bytes: Vec<u8> = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let words = bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    let mut text = String::new();
    for word in words {
        let _ = write!(text, "{word:08X}");
    }
    let _ = write!(text, ":{:04X}", address.port());
    text
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn ones_own_connection_is_ones_own() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else { continue }; // no IPv6 here
            let local = listener.local_addr().unwrap();
            let client = TcpStream::connect(local).unwrap();
            let (_server, from) = listener.accept().unwrap();
            let own = rustix::process::getuid().as_raw();
            assert_eq!(uid_of(from, local), Some(own));
            assert_eq!(uid_of(local, from), Some(own), "and the other way round");
            drop(client);
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert_eq!(uid_of(from, local), None, "what is closed is nobody's");
        }
    }

    #[test]
    fn the_tables_lines_are_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \x20  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0\n\
            \x20  1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 20 4 30 10 -1\n";
        let find = |from: &str| find(table, from.parse().unwrap(), "127.0.0.1:8080".parse().unwrap());
        if cfg!(target_endian = "little") {
            assert_eq!((find("127.0.0.1:50000"), find("127.0.0.1:50001")), (Some(1000), None));
        }
    }
}
