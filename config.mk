# The configuration targets, as Kconfig users know them. The Makefile that includes this defines PYTHON, and ENV: a
# target that makes that Python's environment, or nothing.
#
#   make menuconfig                               change options in a menu
#   make defconfig-gpt2-local                     write .config from a defconfig; also: make defconfig DEFCONFIG=x
#   make TRACKER=wandb,trackio defconfig-local    … with what is given here written into it
#   make savedefconfig list-defconfigs show-config olddefconfig oldconfig allyesconfig allnoconfig

DEFCONFIG ?= local

CONFIG_COMMAND = $(PYTHON) -m trackers
CONFIG_SIMPLE := menuconfig oldconfig olddefconfig allyesconfig allnoconfig
CONFIG_READERS := savedefconfig list-defconfigs show-config

# Variables given to make itself, as in `make TRACKER=wandb`: make hands them on in the environment. The program knows
# which of them are options, this package's and those of a Kconfig tree around it.
CONFIG_GIVEN = $(foreach v,$(.VARIABLES),$(if $(findstring command line,$(origin $v)),--env $v))

.PHONY: $(CONFIG_SIMPLE) $(CONFIG_READERS) nconfig defconfig

menuconfig:  ## change the options of .config in a menu
nconfig:  ## the same
oldconfig:  ## ask for the options that .config doesn't set yet
olddefconfig:  ## bring .config up to date: new options get their defaults, unknown ones are dropped
defconfig:  ## write .config: make defconfig DEFCONFIG=gpt2-local, or make defconfig-gpt2-local
savedefconfig:  ## write what .config changes from the defaults to ./defconfig
allyesconfig:  ## write .config with every yes-or-no option y
allnoconfig:  ## write .config with every yes-or-no option n
list-defconfigs:  ## the defconfigs that can be named
show-config:  ## each option's value and where it came from

$(CONFIG_SIMPLE): $(ENV)
	@$(CONFIG_COMMAND) $@

nconfig: $(ENV)
	@$(CONFIG_COMMAND) menuconfig

defconfig: $(ENV)
	@$(CONFIG_COMMAND) defconfig $(CONFIG_GIVEN) '$(DEFCONFIG)'

defconfig-%: $(ENV)
	@$(CONFIG_COMMAND) defconfig $(CONFIG_GIVEN) '$*'

# After those that write .config, also under make -j.
$(CONFIG_READERS): $(ENV) | $(filter $(CONFIG_SIMPLE) nconfig defconfig defconfig-%,$(MAKECMDGOALS))
	@$(CONFIG_COMMAND) $@
