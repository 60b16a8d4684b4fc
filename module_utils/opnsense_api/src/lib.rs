//! opnsense_api
