//! The runtime's question whether it talks to a driver (export table `d4082055`).

use crate::md2::hmac_md2;

const KEY: [u8; 16] = [
    0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52, 0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f,
];

/// What the answer is made from.
#[derive(Clone, Debug)]
pub struct Question {
    /// What `cuDriverGetVersion` says.
    pub driver_version: u32,
    /// The runtime's version, plus 0, 1 or 2.
    pub version: u32,
    /// Process id.
    pub pid: u32,
    /// Low half of `pthread_self`.
    pub thread: u32,
    /// Addresses of the runtime's interface table, of the integrity table and of its function.
    pub addresses: [u64; 3],
    /// Seconds since 1970, as the runtime passes them.
    pub unix_seconds: u64,
    /// Each device's UUID and PCI domain, bus and device.
    pub devices: Vec<([u8; 16], [u32; 3])>,
}

impl Question {
    /// The answer.
    pub fn answer(&self) -> [u8; 16] {
        match self.version % 10 {
            // The answers to the first two questions are constants.
            0 => 0x5c67_cb03_1c18_4133_e8d1_4c1f_aa83_d38e_u128.to_be_bytes(),
            1 => 0x5c67_cb03_1c18_4118_e8d1_4c1f_aa83_d38e_u128.to_be_bytes(),
            _ => hmac_md2(KEY, &self.message()),
        }
    }

    fn message(&self) -> Vec<u8> {
        let mut message = Vec::new();
        for word in [self.driver_version, self.version, self.pid, self.thread] {
            message.extend(word.to_le_bytes());
        }
        for word in self.addresses.iter().chain([&self.unix_seconds]) {
            message.extend(word.to_le_bytes());
        }
        for (uuid, pci) in &self.devices {
            message.extend(uuid);
            pci.iter().for_each(|word| message.extend(word.to_le_bytes()));
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_observed_vector() {
        let question = Question {
            driver_version: 13000,
            version: 13002,
            pid: 1234,
            thread: 0x89ab_cdef,
            addresses: [0x1000, 0x2000, 0x3000],
            unix_seconds: 0x6500_0000,
            devices: vec![(std::array::from_fn(|i| i as u8), [0, 1, 2])],
        };
        let expected = 0xa524_f737_a7fa_5b3f_0af6_96d0_da53_a8f2_u128.to_be_bytes();
        assert_eq!(question.answer(), expected);
    }
}
