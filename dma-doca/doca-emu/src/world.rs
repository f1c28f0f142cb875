//! The devices of a configuration.

use std::ffi::CString;
use std::sync::Arc;

use crate::card::Card;
use crate::config::Config;
use crate::dev::Info;

/// All devices, of all cards.
pub(crate) struct World {
    pub(crate) version: CString,
    /// Functions that this process can list and open.
    pub(crate) infos: Vec<Arc<Info>>,
}

impl World {
    pub(crate) fn new(config: Config) -> Arc<Self> {
        let mut infos = Vec::new();
        for card in config.cards {
            let card = Arc::new(Card::new(card));
            let seen = card.config.function.iter().zip(0..).filter(|(function, _)| function.seen);
            infos.extend(seen.map(|(_, index)| Arc::new(Info::new(Arc::clone(&card), index))));
        }
        Arc::new(Self { version: config.version, infos })
    }
}
