//! MD2 (RFC 1319) and HMAC (RFC 2104) over it: what the runtime's integrity check is made of.

const BLOCK: usize = 16;

/// The substitution table (digits of pi) of RFC 1319.
static S: [u8; 256] = [
    41, 46, 67, 201, 162, 216, 124, 1, 61, 54, 84, 161, 236, 240, 6, 19, 98, 167, 5, 243, 192, 199, 115, 140, 152, 147,
    43, 217, 188, 76, 130, 202, 30, 155, 87, 60, 253, 212, 224, 22, 103, 66, 111, 24, 138, 23, 229, 18, 190, 78, 196,
    214, 218, 158, 222, 73, 160, 251, 245, 142, 187, 47, 238, 122, 169, 104, 121, 145, 21, 178, 7, 63, 148, 194, 16,
    137, 11, 34, 95, 33, 128, 127, 93, 154, 90, 144, 50, 39, 53, 62, 204, 231, 191, 247, 151, 3, 255, 25, 48, 179, 72,
    165, 181, 209, 215, 94, 146, 42, 172, 86, 170, 198, 79, 184, 56, 210, 150, 164, 125, 182, 118, 252, 107, 226, 156,
    116, 4, 241, 69, 157, 112, 89, 100, 113, 135, 32, 134, 91, 207, 101, 230, 45, 168, 2, 27, 96, 37, 173, 174, 176,
    185, 246, 28, 70, 97, 105, 52, 64, 126, 15, 85, 71, 163, 35, 221, 81, 175, 58, 195, 92, 249, 206, 186, 197, 234,
    38, 44, 83, 13, 110, 133, 40, 132, 9, 211, 223, 205, 244, 65, 129, 77, 82, 106, 220, 55, 200, 108, 193, 171, 250,
    36, 225, 123, 8, 12, 189, 177, 74, 120, 136, 149, 139, 227, 99, 232, 109, 233, 203, 213, 254, 59, 0, 29, 57, 242,
    239, 183, 14, 102, 88, 208, 228, 166, 119, 114, 248, 235, 117, 75, 10, 49, 68, 80, 180, 143, 237, 31, 26, 219, 153,
    141, 51, 159, 17, 131, 20,
];

/// MD2 of `message`.
pub fn md2(message: &[u8]) -> [u8; 16] {
    let mut padded = message.to_vec();
    let padding = BLOCK - message.len() % BLOCK;
    padded.resize(message.len() + padding, padding as u8);
    let mut checksum = [0_u8; BLOCK];
    let mut last = 0;
    for block in padded.chunks(BLOCK) {
        for (place, byte) in checksum.iter_mut().zip(block) {
            *place ^= S[usize::from(byte ^ last)];
            last = *place;
        }
    }
    padded.extend(checksum);
    let mut state = [0_u8; 3 * BLOCK];
    for block in padded.chunks(BLOCK) {
        for (i, byte) in block.iter().enumerate() {
            state[BLOCK + i] = *byte;
            state[2 * BLOCK + i] = byte ^ state[i];
        }
        let mut t = 0_u8;
        for round in 0..18 {
            for place in &mut state {
                *place ^= S[usize::from(t)];
                t = *place;
            }
            t = t.wrapping_add(round);
        }
    }
    let mut digest = [0; 16];
    digest.copy_from_slice(&state[..16]);
    digest
}

/// HMAC-MD2 of `message` with a key of one block.
pub fn hmac_md2(key: [u8; BLOCK], message: &[u8]) -> [u8; 16] {
    let pad = |with: u8| key.map(|byte| byte ^ with).to_vec();
    let inner = md2(&[pad(0x36).as_slice(), message].concat());
    md2(&[pad(0x5c).as_slice(), &inner].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: [u8; 16]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn agrees_with_the_rfc() {
        assert_eq!(hex(md2(b"")), "8350e5a3e24c153df2275c9f80692773");
        assert_eq!(hex(md2(b"abc")), "da853b0d3f88d99b30283a69e6ded6bb");
        assert_eq!(
            hex(md2(b"abcdefghijklmnopqrstuvwxyz")),
            "4e8ddff3650292ab5a4108c3aa47940b"
        );
        let long = b"12345678901234567890123456789012345678901234567890123456789012345678901234567890";
        assert_eq!(hex(md2(long)), "d5976f79d83d3a0dc9806c3c66f3efd8");
    }
}
