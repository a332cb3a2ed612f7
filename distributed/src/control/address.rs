//! The encryption parameters of engine addresses, with PostgreSQL's names. Messages never repeat a
//! part of an address that may belong to a password.

use super::tls::Tls;
use std::path::PathBuf;

/// The names of the encryption parameters.
pub(super) const NAMES: &str = "sslmode, sslrootcert, sslcert, sslkey";

/// The encryption parameters of an address.
#[derive(Debug, Default)]
pub(super) struct Said {
    mode: Option<String>,
    authorities: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Said {
    /// Takes a parameter, if it is one of these.
    ///
    /// # Errors
    /// The parameter's value is not well formed.
    pub(super) fn take(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let path = || decoded(value).map(|path| Some(PathBuf::from(path)));
        match name {
            "sslmode" => self.mode = Some(decoded(value)?),
            "sslrootcert" => self.authorities = path()?,
            "sslcert" => self.certificate = path()?,
            "sslkey" => self.key = path()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether the connection is to be encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.mode.as_deref() == Some("verify-full")
    }

    /// How the connection is encrypted. The named files are read now.
    ///
    /// # Errors
    /// What is unsafe or unusable, and what to write instead.
    pub(super) fn tls(self) -> Result<Option<Tls>, String> {
        let write = "write sslmode=verify-full, and sslrootcert=FILE with the authority of the server's \
                     certificate unless this system knows that";
        let mode = self.mode.as_deref().unwrap_or("prefer");
        match mode {
            "verify-full" => {}
            "disable" | "allow" | "prefer" => {
                let given = [
                    ("sslrootcert", &self.authorities),
                    ("sslcert", &self.certificate),
                    ("sslkey", &self.key),
                ];
                return match given.iter().find(|(_, path)| path.is_some()) {
                    Some((name, _)) => Err(format!(
                        "it has {name} and sslmode={mode}, with which nothing is checked: {write}"
                    )),
                    None => Ok(None),
                };
            }
            "require" => {
                return Err(format!(
                    "sslmode=require encrypts, but whoever is on the way can answer in the server's \
                     place and read all the same: {write}"
                ));
            }
            "verify-ca" => {
                return Err(format!(
                    "sslmode=verify-ca takes any server that the authority knows for this one: {write}"
                ));
            }
            _ => return Err(format!("its sslmode is not known, expected verify-full: {write}")),
        }
        let client = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err("it has sslcert, and no sslkey with its key".to_owned()),
            (None, Some(_)) => {
                return Err("it has sslkey, and no sslcert with its certificate".to_owned());
            }
        };
        Tls::new(self.authorities.as_deref(), client).map(Some)
    }
}

/// What to do about a remote host without encryption.
pub(super) fn over_network(host: &str, own: &str) -> String {
    format!(
        "{host} is reached over the network, where whoever is on it reads along, and may answer in its \
         place: add ?sslmode=verify-full, and &sslrootcert=FILE with the authority of its certificate \
         unless this system knows that; or use {own}, such as the end of a tunnel"
    )
}

/// The parameter's name, if it looks like a name.
pub(super) fn shown(name: &str) -> &str {
    let is_name = name.len() <= 32 && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'_'));
    if is_name { name } else { "what comes after its ?" }
}

/// Decodes percent signs.
pub(super) fn decoded(value: &str) -> Result<String, String> {
    let wrong = || "a % in it is not followed by two hexadecimal digits".to_owned();
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next().ok_or_else(wrong)?, rest.next().ok_or_else(wrong)?];
        bytes.extend(hex::decode(digits).map_err(|_| wrong())?);
    }
    String::from_utf8(bytes).map_err(|_| "a value in it is not text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_signs_are_read() {
        assert_eq!(decoded("a%2Fb%20").as_deref(), Ok("a/b "));
        assert!(decoded("a%2").is_err() && decoded("%zz").is_err() && decoded("%ff").is_err());
    }
}
