//! ssh
use ssh2 as _;
