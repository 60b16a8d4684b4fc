# homelab.anvil: `make help` says what can be done here.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

ARCH := $(shell uname -m)
# Architectures to build, and the cargo profile. `dev` is quick to build and big; it shares its dependencies with the
# tests, so demo and test need no second build of them.
ARCHS ?= $(ARCH)
PROFILE ?= release
demo docs e2e test: PROFILE := dev

# Outside the checkout, so that every clone finds its dependencies compiled.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/homelab-anvil
export CARGO_TARGET_DIR ?= $(CACHE)/target
export CARGO_BUILD_TARGET := $(ARCH)-unknown-linux-musl
export ANVIL_ZIG := $(CARGO_TARGET_DIR)/zig
export ANVIL_BENCH := $(CACHE)/bench
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Another collections path in the environment would win over ansible.cfg.
unexport ANSIBLE_COLLECTIONS_PATH

# More arguments for the playbook targets, for instance ARGS="--check --diff".
ARGS ?=

.PHONY: help
help: ## say what can be done here
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1\t\2/p' Makefile | while IFS=$$'\t' read -r target text; do \
	    printf '  %-20s %s\n' "$$target" "$$text"; done

.PHONY: setup
setup: ## install what is missing: packages, .venv with pinned Python tools, rust targets
	@.ci/setup

.PHONY: build
build: setup ## the modules' bundle for this machine's architecture (PROFILE=dev: quicker)
	@.ci/build $(PROFILE) $(ARCHS)

.PHONY: rebuild
rebuild: build ## build the collection and install it into .ansible/collections
	@tarball=$$(.ci/package .ansible); \
	ansible-galaxy collection install --force --no-deps --offline --collections-path .ansible/collections "$$tarball"

.PHONY: demo
demo: rebuild ## one host from identity to proven guest, twice, against doubles on this machine
	@cargo run --quiet --bin anvil-demo

.PHONY: test
test: setup-tests rebuild ## lint, then every test but the heavy suites, with a count at the end
	@.ci/test

.PHONY: e2e
e2e: setup-tests rebuild ## real machines in QEMU, network-booted from real servers; a line for each thing proved
	@cargo test --quiet --package e2e --test e2e -- --test-threads 2
.PHONY: test-kea3
test-kea3: setup-tests ## the tests of kea_reservation with a real Kea 3, unpacked into the cache from a newer Debian
	@.ci/kea3 $(CACHE)/kea3
	@cargo test -p kea_reservation --test it kea3

.PHONY: setup-tests
setup-tests:
	@.ci/setup --tests

.PHONY: lint
lint: setup-tests ## formatting, clippy, ansible-lint, yamllint, shellcheck, generated files, roles' specs
	@.ci/lint

.PHONY: generate
generate: setup ## write plugins/modules/*.py and meta/runtime.yml from the option tables
	@cargo run --quiet --bin anvil-generate -- write

.PHONY: docs
docs: rebuild ## pages of every module and role, into the build folder
	@.ci/docs

.PHONY: dist
dist: ## the release tarball for both architectures, small; fails over 20 MB
	@.ci/setup --dist
	@.ci/build dist x86_64 aarch64
	@.ci/package .

.PHONY: bench
bench: rebuild ## our modules and others' side by side: requests, wall time, CPU time, as ratios
	@.ci/bench

.PHONY: clean
clean: ## remove what was built in this checkout; caches outside stay
	@rm -rf .ansible .venv libexec plugins/modules/x86_64 plugins/modules/aarch64 homelab-anvil-*.tar.gz tests/output

.PHONY: vm-identity-assign
vm-identity-assign: installed ## allocate VMID and MAC: make vm-identity-assign HOST=web01
	@test -n "$(HOST)" || { echo 'say which host: make vm-identity-assign HOST=web01' >&2; exit 2; }
	@ansible-playbook playbooks/vm_identity.yml --limit "$(HOST)" $(ARGS)

.PHONY: dhcp
dhcp: installed ## reservations of all hosts (HOST= for one)
	@ansible-playbook playbooks/dhcp.yml $(if $(HOST),--limit "$(HOST)") $(ARGS)

.PHONY: dns
dns: installed ## records of all hosts (HOST= for one)
	@ansible-playbook playbooks/dns.yml $(if $(HOST),--limit "$(HOST)") $(ARGS)

.PHONY: boot-once
boot-once: installed ## say how a server would boot once: make boot-once NAME=server1 (CONFIRM=server1 does it)
	@test -n "$(NAME)" || { echo 'say which server: make boot-once NAME=server1' >&2; exit 2; }
	@ansible-playbook playbooks/boot_once.yml --limit "$(NAME)" $(if $(CONFIRM),-e "confirm=$(CONFIRM)") $(ARGS)

.PHONY: pools
pools: installed ## list a host's disks and plan its ZFS pools: make pools NAME=pve1 [WIPE=tank,vmdata] (CONFIRM=pve1 does it)
	@test -n "$(NAME)" || { echo 'say which host: make pools NAME=pve1' >&2; exit 2; }
	@ansible-playbook playbooks/pools.yml --limit "$(NAME)" $(if $(WIPE),-e "wipe=$(WIPE)") \
	    $(if $(CONFIRM),-e "confirm=$(CONFIRM)") $(ARGS)

.PHONY: zfs-image
zfs-image: setup-tests ## the guest with OpenZFS that test-zfs runs in; up to 35 minutes from nothing, cached after
	@tests/zfs/image

.PHONY: test-zfs
test-zfs: zfs-image ## zfs_pool on a real kernel with real OpenZFS and disks of every kind, in QEMU
	@.ci/test-zfs

.PHONY: installed
installed:
	@test -x .venv/bin/ansible-playbook -a -d .ansible/collections/ansible_collections/homelab/anvil \
	    || { echo 'not built: run make rebuild' >&2; exit 2; }
