# Everything a person or a CI job starts. `make help` lists it.
#
# Needs a Rust toolchain; `setup` installs the rest where it is missing.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# Where downloads and the private CRIU and nvcc lie.
export HETCKPT_CACHE ?= $(HOME)/.cache/hetckpt
# The CRIU that tests and the demo use.
export HETCKPT_CRIU ?= $(HETCKPT_CACHE)/criu/bin/criu
NVCC ?= $(HETCKPT_CACHE)/nvcc-13.0/bin/nvcc
# Where llvm-sys 221 (LLVM 22.1) finds bin/llvm-config.
export LLVM_SYS_221_PREFIX ?= /usr/lib/llvm-22

CARGO ?= cargo
# What is built once gains nothing from what cargo would keep for the next time.
export CARGO_INCREMENTAL ?= $(if $(CI),0,1)
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
# What users get is built by the profile `release`, what is only tested by `dev`: `make test` builds everything once.
RELEASE_GOALS := build demo soak frameworks-test gpu-test bundle install install-criu-wrapper
export PROFILE ?= $(if $(filter $(RELEASE_GOALS),$(MAKECMDGOALS)),release,dev)
BUILT := $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
PREFIX ?= /usr/local
# Where the CRIU on PATH looks for plugins unless it is told: `install` puts a link to ours there.
CRIU_PLUGIN_DIR ?= $(shell criu=$$(command -v criu) && echo "$${criu%/*/*}/lib/criu")
# Says how long what follows its first argument has taken.
STAGE := e2e/stage.sh
# Runs its first argument beside the others.
BESIDE := e2e/beside.sh
# The end-to-end tests of `test-fast`, and the programs that they run.
FAST_PROGRAMS := spin scan paced cl_matmul
FAST_TESTS ?= catches_a_kernel_with_unfinished preempt_scan opencl_program_is_restored_on_an_opencl_device/cl_matmul restores_detached
# Random preemptions of each program in `make soak`.
PREEMPTIONS ?= 50
# Dumps and restores of one program in `make soak`.
SOAK_CYCLES ?= 100
# Rounds of each test of Slurm in `make soak`, and the Debian suites whose Slurm is tried beside the system's.
SLURM_ROUNDS ?= 10
SLURM_SUITES ?= trixie
# How long `make soak` tries random kernels.
RANDOM_SECONDS ?= 3600
# How long `make fuzz` tries each target.
FUZZ_SECONDS ?= 600
# Faults of each kind that `make soak` gives the snapshot store.
STORE_FAULTS ?= 20
# The same on OpenCL devices, for each direction in `make opencl-test`.
OPENCL_PREEMPTIONS ?= 1
# `--all`: in every direction; none: in a covering set of them.
OPENCL_DIRECTIONS ?=
# Not empty: instructions on the second implementation from source too.
OPENCL_FROM_SOURCE ?=
# End-to-end tests that `user-test` runs; none: all.
USER_TESTS ?= a_kernel_with_unfinished restores_one_archive_twice dumps_twice namespaces_ run_passes ps_lists preempt_persistent

# The tree that runs: what `install` copies and what the end-to-end tests use.
export HETCKPT_STAGE := $(TARGET)/$(if $(filter release,$(PROFILE)),stage,stage-$(PROFILE))
export HETCKPT_PROGRAMS := $(TARGET)/e2e/programs
export HETCKPT_PTX := $(TARGET)/e2e/ptx

# What cargo builds, and its name in the stage.
STAGED := \
	hetckpt:bin/hetckpt \
	hetckpt-server:bin/hetckpt-server \
	hetckpt-tracer:bin/hetckpt-tracer \
	hetckpt-ptxas:lib/hetckpt/ptxas \
	libcuda_shim.so:lib/hetckpt/libcuda.so.1 \
	libhetckpt_opencl.so:lib/hetckpt/libhetckpt_opencl.so \
	libnvml_shim.so:lib/hetckpt/libnvidia-ml.so.1 \
	libhetckpt_cpu_codegen.so:lib/hetckpt/libhetckpt_cpu_codegen.so \
	libhetgpu_plugin.so:lib/criu/hetgpu_plugin.so

# Names that some programs open libraries by, and what lies there.
STAGED_LINKS := \
	lib/hetckpt/libcuda.so:libcuda.so.1 \
	lib/hetckpt/libnvidia-ml.so:libnvidia-ml.so.1 \
	lib/hetckpt/ptxas-blackwell:ptxas

# Files as they are, and their names in the stage: where the OpenCL loader finds our ICD's name, what programs ask us for
# checkpoints with, and what Python loads first.
STAGED_FILES := \
	instrument/shim-opencl/etc/hetckpt.icd:lib/hetckpt/OpenCL/vendors/hetckpt.icd \
	instrument/api/hetckpt.h:include/hetckpt.h \
	instrument/api/python/hetckpt.py:lib/hetckpt/python/hetckpt.py \
	hetckpt/wrapper/sitecustomize.py:lib/hetckpt/python-startup/sitecustomize.py

# Test programs carry PTX only, compressed as nvcc does by default; no_ptx, machine_code, native_graph, printing and
# boundary_native, which is `boundary` once more, carry machine code only.
# Clusters and bulk copies are there from compute capability 9.0 on.
NVCC_FLAGS := -std=c++17 -O3
PTX_ONLY := -gencode arch=compute_80,code=compute_80
NEWER_PTX_ONLY := -gencode arch=compute_90,code=compute_90
MACHINE_CODE_ONLY := -gencode arch=compute_90,code=sm_90
PROGRAM_NAMES := $(filter-out mpi_%,$(basename $(notdir $(wildcard e2e/programs/*.cu))))
# MPI test programs, where there is an MPI to compile them with.
MPI_PROGRAMS := $(if $(shell command -v mpicxx),$(patsubst e2e/programs/%.cu,$(HETCKPT_PROGRAMS)/%,$(wildcard e2e/programs/mpi_*.cu)))
MACHINE_CODE_PROGRAMS := no_ptx machine_code native_graph printing
BOUNDARY_NATIVE := $(HETCKPT_PROGRAMS)/boundary_native
PROGRAM_HEADERS := $(wildcard e2e/programs/*.h)
PROGRAMS := $(addprefix $(HETCKPT_PROGRAMS)/,$(PROGRAM_NAMES))
# OpenCL test programs, where there are the headers to compile them with.
OPENCL_HEADERS := $(wildcard /usr/include/CL/cl.h /usr/local/include/CL/cl.h)
OPENCL_PROGRAMS := $(if $(OPENCL_HEADERS),$(patsubst e2e/opencl-programs/%.c,$(HETCKPT_PROGRAMS)/%,$(wildcard e2e/opencl-programs/*.c)))
PTX := $(patsubst %,$(HETCKPT_PTX)/%.ptx,$(filter-out $(MACHINE_CODE_PROGRAMS) unmodelled,$(PROGRAM_NAMES)))

SCRIPTS = .ci/run hetckpt/wrapper/criu $(shell find e2e migrate-scripts -name '*.sh' 2>/dev/null) $(wildcard migrate-scripts/lsf/*.hetckpt)

.PHONY: help setup build staged built fast-built stage programs program-files ptx-files sampler demo test test-fast check lints fmt-check clippy doc machete scripts unit e2e-test user-test scripts-test opencl-test opencl-instructions opencl-preemptions soak fuzz frameworks-test gpu-test bundle fmt clean install install-criu-wrapper

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

setup: ## install what is missing to build and test: LLVM 22, CRIU >= 4.2, nvcc 13.0, clang and libelf for eBPF
	@e2e/setup/prepare.sh

build: staged ## build everything and stage it in target/stage

# The same by PROFILE.
staged: setup
	$(CARGO) build --profile $(PROFILE) --workspace --locked
	@$(MAKE) --no-print-directory stage PROFILE=$(PROFILE)

# All that tests need, tests included. Without them cargo would choose other features of libraries. Here and below always the whole workspace: for a package alone cargo chooses other features of
# libraries, and builds those anew.
built: setup
	$(CARGO) build --profile $(PROFILE) --workspace --lib --bins --tests --locked
	$(CARGO) build --profile $(PROFILE) --workspace --test e2e --locked
	@$(MAKE) --no-print-directory stage PROFILE=$(PROFILE)

# What `test-fast` needs of that.
fast-built: setup
	$(CARGO) build --profile $(PROFILE) --workspace --lib --bins --locked
	$(CARGO) test --profile $(PROFILE) --workspace --lib --bins --test e2e --locked --no-run
	@$(MAKE) --no-print-directory stage PROFILE=$(PROFILE)

# Copies only what changed, so that a running server keeps its file.
stage:
	@for pair in $(STAGED); do \
		built=$(BUILT)/$${pair%%:*} staged=$(HETCKPT_STAGE)/$${pair#*:}; \
		cmp -s "$$built" "$$staged" || install -D "$$built" "$$staged"; \
	done
	@for pair in $(STAGED_FILES); do \
		install -D -m 644 "$${pair%%:*}" "$(HETCKPT_STAGE)/$${pair#*:}"; \
	done
	@for pair in $(STAGED_LINKS); do \
		ln -sfn "$${pair#*:}" "$(HETCKPT_STAGE)/$${pair%%:*}"; \
	done

programs: setup ## compile the CUDA and OpenCL test programs
	@$(MAKE) --no-print-directory program-files

program-files: $(PROGRAMS) $(BOUNDARY_NATIVE) $(OPENCL_PROGRAMS) $(MPI_PROGRAMS)
	@:

# For measurements on GPUs.
ptx-files: $(PTX)
	@:

sampler: setup ## compile what textures do in software, after a change of sampler.cu
	$(NVCC) -ptx -rdc=true -arch=compute_75 --fmad=false -O3 instrument/ptx/src/images/sampler.cu -o - | \
		sed -e '/^[[:space:]]*\/\//d' -e '/^[[:space:]]*$$/d' >instrument/ptx/src/images/sampler.ptx

$(OPENCL_PROGRAMS): $(HETCKPT_PROGRAMS)/%: e2e/opencl-programs/%.c $(wildcard e2e/opencl-programs/*.h)
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -O2 -Wall -Wextra $< -o $@ -lOpenCL -lm

$(PROGRAMS): TARGET_CODE = $(PTX_ONLY)
$(HETCKPT_PROGRAMS)/unmodelled: TARGET_CODE = $(NEWER_PTX_ONLY)
$(addprefix $(HETCKPT_PROGRAMS)/,$(MACHINE_CODE_PROGRAMS)): TARGET_CODE = $(MACHINE_CODE_ONLY)
$(PROGRAMS): $(HETCKPT_PROGRAMS)/%: e2e/programs/%.cu $(PROGRAM_HEADERS)
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) $(TARGET_CODE) $< -o $@

$(BOUNDARY_NATIVE): e2e/programs/boundary.cu
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) $(MACHINE_CODE_ONLY) $< -o $@

$(MPI_PROGRAMS): $(HETCKPT_PROGRAMS)/%: e2e/programs/%.cu $(PROGRAM_HEADERS)
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) $(PTX_ONLY) $$(mpicxx --showme:compile) $< -o $@ $$(mpicxx --showme:link)

$(PTX): $(HETCKPT_PTX)/%.ptx: e2e/programs/%.cu $(PROGRAM_HEADERS)
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) -ptx -arch=compute_80 $< -o $@

demo: staged programs ## stop a program in mid-kernel, dump it, restore it, compare
	e2e/demo.sh

# docs/testing.md says what belongs into which tier, and how long each stage takes.
test: ## the whole check, as CI runs it; it must leave the tree as it was
	@mkdir -p $(TARGET)
	@git status --porcelain >$(TARGET)/status-before-test
	@$(STAGE) formatting $(MAKE) fmt-check scripts
	@$(STAGE) building $(MAKE) -j2 built program-files
	@# Tests wait more than they compute.
	@$(STAGE) 'unit tests, lints beside them' $(BESIDE) '$(MAKE) lints' $(MAKE) unit
	@$(STAGE) 'OpenCL instructions' $(MAKE) opencl-instructions
	@$(STAGE) 'end-to-end tests' $(MAKE) e2e-test
	@$(STAGE) 'as another user' $(MAKE) user-test
	@$(STAGE) 'preemptions on OpenCL devices' $(MAKE) opencl-preemptions
	@git status --porcelain | diff $(TARGET)/status-before-test - || \
		{ echo 'the tests left the files above in the tree' >&2; exit 1; }

test-fast: ## formatting, lints, unit tests, one dump and restore on each kind of device
	@$(STAGE) formatting $(MAKE) fmt-check scripts
	@$(STAGE) building $(MAKE) -j2 fast-built $(FAST_PROGRAMS:%=$(HETCKPT_PROGRAMS)/%)
	@$(STAGE) lints $(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@$(STAGE) 'unit tests' $(CARGO) test --workspace --lib --bins --locked --no-fail-fast
	@$(STAGE) 'a dump and restore on each kind of device' \
		$(CARGO) test --workspace --test e2e --locked -- $(FAST_TESTS)

check: fmt-check scripts lints ## formatting, lints, documentation, shell scripts

lints: clippy doc machete

fmt-check:
	$(CARGO) fmt --all --check

clippy: setup
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --workspace --test e2e --locked -- -D warnings

doc: setup
	RUSTDOCFLAGS='-D warnings -A rustdoc::private-intra-doc-links' $(CARGO) doc --workspace --no-deps --document-private-items --locked

machete: ## dependencies that nothing uses
	@e2e/setup/install-machete.sh
	$(HETCKPT_CACHE)/machete/bin/cargo-machete .

scripts: setup
	shellcheck $(SCRIPTS)

unit: setup ## unit, golden and property tests
	@e2e/setup/install-s3-server.sh
	$(CARGO) test --workspace --locked --no-fail-fast

e2e-test: built programs ## end-to-end tests with the real CRIU, TESTS='PART_OF_A_NAME...'
	$(CARGO) test --profile $(PROFILE) --workspace --locked --test e2e -- $(TESTS)

user-test: built programs ## some end-to-end tests as a user who is not root, USER_TESTS='PART_OF_A_NAME...'
	e2e/as-user.sh $(USER_TESTS)

scripts-test: built programs ## the scripts for batch schedulers, SCRIPTS_TESTS='FOLDER...'; under Slurm for real, what others do is played
	@e2e/setup/install-slurm.sh
	HETCKPT=$(HETCKPT_STAGE)/bin/hetckpt migrate-scripts/test.sh $(SCRIPTS_TESTS)

opencl-test: opencl-instructions opencl-preemptions ## the next two

# On the first implementation `unit` runs them, from source.
opencl-instructions: setup ## generated OpenCL C on a second implementation, as SPIR-V, and from source with OPENCL_FROM_SOURCE=1
	@e2e/setup/install-intel-opencl.sh
	@if [ -d $(HETCKPT_CACHE)/intel-opencl/vendors ]; then \
		echo "on Intel's OpenCL runtime for CPUs"; \
		export OCL_ICD_VENDORS=$(HETCKPT_CACHE)/intel-opencl/vendors OPENCL_VENDOR_PATH=$(HETCKPT_CACHE)/intel-opencl/vendors; \
		export HETCKPT_TEST_REQUIRE_OPENCL=1; \
		[ -z "$(OPENCL_FROM_SOURCE)" ] || $(CARGO) test --workspace --test opencl_device --locked; \
		HETCKPT_TEST_OPENCL_IL=1 $(CARGO) test --workspace --test opencl_device --locked; \
		$(CARGO) test --workspace --test opencl_driver --locked; \
	fi

opencl-preemptions: built programs ## random preemptions between all OpenCL devices and the CPU, OPENCL_PREEMPTIONS=N each (1)
	@e2e/setup/install-intel-opencl.sh
	@HETCKPT_PREEMPTIONS=$(OPENCL_PREEMPTIONS) e2e/opencl-preemptions.sh $(OPENCL_DIRECTIONS)

soak: staged programs ## random preemptions of every program, PREEMPTIONS=N each (50), and 20 for each way to an OpenCL device; SOAK_CYCLES=N dumps of one (100); each to another node; preemptions by Slurm, SLURM_ROUNDS=N each (10), in containers, and by that of SLURM_SUITES; the oldest CRIU; random kernels for RANDOM_SECONDS=N (3600)
	HETCKPT_PREEMPTIONS=$(PREEMPTIONS) $(CARGO) test --profile $(PROFILE) --workspace --locked --test e2e -- preempt
	@$(MAKE) --no-print-directory opencl-test OPENCL_PREEMPTIONS=20 OPENCL_DIRECTIONS=--all OPENCL_FROM_SOURCE=1
	HETCKPT_SOAK_CYCLES=$(SOAK_CYCLES) $(CARGO) test --profile $(PROFILE) --workspace --locked --test e2e -- soak::
	HETCKPT_ALL_FORMS=1 HETCKPT_RANDOM_SECONDS=$(RANDOM_SECONDS) $(CARGO) test --profile $(PROFILE) --locked -p hetckpt-devices \
		-p hetckpt-codegen -p hetckpt-server --test cpu_instructions --test opencl_device --test random_kernels -- listed_forms random_kernels
	HETCKPT_MODEL_DEPTH=long $(CARGO) test --profile $(PROFILE) --locked -p hetckpt-order
	@e2e/setup/install-s3-server.sh
	HETCKPT_STORE_FAULTS=$(STORE_FAULTS) $(CARGO) test --profile $(PROFILE) --workspace --locked --test s3_server
	HETCKPT_E2E_ALL_NODES=1 $(CARGO) test --profile $(PROFILE) --workspace --locked --test e2e -- other_node
	HETCKPT_E2E_ALL_NODES=1 $(CARGO) test --profile $(PROFILE) --workspace --locked --test e2e -- migration::migrate_ --skip amid
	@$(MAKE) --no-print-directory scripts-test
	@e2e/setup/install-slurm.sh --accounting
	HETCKPT_E2E_SLURM_ROUNDS=$(SLURM_ROUNDS) $(CARGO) test --profile $(PROFILE) --workspace --locked --test e2e -- schedulers::slurm
	HETCKPT_STAGE=$(HETCKPT_STAGE) e2e/containers/rootless.sh
	@for suite in $(SLURM_SUITES); do e2e/slurm/newer-slurm.sh --suite $$suite $(HETCKPT_CACHE)/slurm-$$suite || exit 1; \
		HETCKPT_E2E_SLURM_ROOT=$(HETCKPT_CACHE)/slurm-$$suite HETCKPT_E2E_SLURM_ROUNDS=$(SLURM_ROUNDS) \
		$(CARGO) test --profile $(PROFILE) --workspace --locked --test e2e -- schedulers::slurm || exit 1; done
	@# CRIU 4.1 takes no TCP connections on newer kernels, with or without the plugin.
	@e2e/setup/install-criu.sh --prefix $(HETCKPT_CACHE)/criu-oldest --min 4.1 --suites trixie
	HETCKPT_CRIU=$(HETCKPT_CACHE)/criu-oldest/bin/criu $(CARGO) test --profile $(PROFILE) --workspace --locked --test e2e -- \
		plain_criu rpc_ beside_a images_of ordinary_program catches_a_kernel --skip tcp_connection

# Coverage for libFuzzer, by options of the stable compiler.
FUZZ_FLAGS := -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
	-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks
FUZZ_TARGETS := $(basename $(notdir $(wildcard e2e/fuzz/src/bin/*.rs)))
FUZZ_HOST := $(shell rustc -vV | sed -n 's/^host: //p')
FUZZ_BUILT := $(TARGET)/fuzz/$(FUZZ_HOST)/release
# Texts of other tests to begin with.
FUZZ_SEEDS_ptx := instrument/ptx/tests/filetests
FUZZ_SEEDS_hetir := restore-kernels/resegment/tests/kernels

fuzz: ## fuzz parsers of bytes from outside, FUZZ_SECONDS=N each (600); what crashes one is added to its corpus
	RUSTFLAGS='$(FUZZ_FLAGS)' $(CARGO) build --release --locked -p hetckpt-fuzz --features libfuzzer --bins \
		--target $(FUZZ_HOST) --target-dir $(TARGET)/fuzz
	@$(foreach t,$(FUZZ_TARGETS),mkdir -p $(TARGET)/fuzz/corpus/$(t) && echo 'fuzzing $(t)' && \
		$(FUZZ_BUILT)/fuzz_$(t) -max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=3000 -verbosity=0 \
			-print_final_stats=1 -artifact_prefix=e2e/fuzz/corpus/$(t)/ \
			$(TARGET)/fuzz/corpus/$(t) e2e/fuzz/corpus/$(t) $(FUZZ_SEEDS_$(t)) &&) true

frameworks-test: staged ## PyTorch and CuPy from PyPI (several GB) on a stand-in for NVIDIA's driver: that all calls are answered
	e2e/frameworks-test.sh

gpu-test: staged programs ptx-files ## acceptance run and measurements on a machine with an NVIDIA GPU
	$(CARGO) build --release -p hetckpt-devices --examples --locked
	e2e/gpu/accept.sh

bundle: staged programs ptx-files ## pack the above for a machine with a GPU and without toolchains
	$(CARGO) build --release -p hetckpt-devices --examples --locked
	e2e/gpu/bundle.sh $(TARGET)/hetckpt-bundle.tar.xz

fmt: ## format the Rust sources
	$(CARGO) fmt --all

clean: ## remove what was built; downloads stay in the cache
	$(CARGO) clean

install: staged ## copy the stage, and the private CRIU if there is one, to PREFIX (/usr/local), below DESTDIR; link the plugin to where CRIU looks (CRIU_PLUGIN_DIR)
	@for pair in $(STAGED); do \
		install -D -s "$(HETCKPT_STAGE)/$${pair#*:}" "$(DESTDIR)$(PREFIX)/$${pair#*:}"; \
	done
	@for pair in $(STAGED_FILES); do \
		install -D -m 644 "$(HETCKPT_STAGE)/$${pair#*:}" "$(DESTDIR)$(PREFIX)/$${pair#*:}"; \
	done
	@for pair in $(STAGED_LINKS); do \
		ln -sfn "$${pair#*:}" "$(DESTDIR)$(PREFIX)/$${pair%%:*}"; \
	done
	@# That of `setup` lies in a folder of who builds, which others may not read.
	@if [ -x "$(HETCKPT_CACHE)/criu/bin/criu" ]; then \
		install -d "$(DESTDIR)$(PREFIX)/lib/hetckpt/criu"; \
		cp -rT --no-preserve=ownership "$(HETCKPT_CACHE)/criu" "$(DESTDIR)$(PREFIX)/lib/hetckpt/criu"; \
		chmod -R a+rX "$(DESTDIR)$(PREFIX)/lib/hetckpt/criu"; \
	fi
	@if [ -n "$(CRIU_PLUGIN_DIR)" ] && [ "$(CRIU_PLUGIN_DIR)" != "$(PREFIX)/lib/criu" ]; then \
		install -d "$(DESTDIR)$(CRIU_PLUGIN_DIR)"; \
		ln -sf "$(PREFIX)/lib/criu/hetgpu_plugin.so" "$(DESTDIR)$(CRIU_PLUGIN_DIR)/"; \
	fi

install-criu-wrapper: install ## the same, and a `criu` in PREFIX/bin that takes --plugin hetgpu
	@install -D -m 755 hetckpt/wrapper/criu "$(DESTDIR)$(PREFIX)/bin/criu"
