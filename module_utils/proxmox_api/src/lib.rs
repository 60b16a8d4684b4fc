//! proxmox_api
