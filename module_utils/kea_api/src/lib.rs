//! kea_api
