--[[
Slurm's cli_filter: gives jobs that use hetckpt the options that they need, unless they have them.

	CliFilterPlugins=lua            in slurm.conf; this file lies beside it, as cli_filter.lua

It runs in sbatch, because the controller's job_submit plugins cannot set --signal. A job uses hetckpt if its comment says so
(--comment=hetckpt), if HETCKPT_STORE is set, or if its script has the words `hetckpt job`.
--]]

-- The program is signalled by hetckpt only, hence B:. The seconds count for the time limit; a preemption takes the partition's
-- GraceTime.
local SIGNAL = "B:USR1@120"

local function says_so(script)
	local file = script and io.open(script)
	if not file then
		return false
	end
	local text = file:read(100000) or ""
	file:close()
	return text:find("hetckpt%s+job") ~= nil
end

local function uses_hetckpt(options)
	local comment, wrapped = options["comment"], options["wrap"]
	if comment and comment:find("hetckpt", 1, true) then
		return true
	end
	if os.getenv("HETCKPT_STORE") then
		return true
	end
	if wrapped then
		return wrapped:find("hetckpt%s+job") ~= nil
	end
	local words = options["argv"] or {}
	return says_so(words[0] or words[1])
end

function slurm_cli_setup_defaults(options, early_pass)
	return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, offset)
	if options["type"] ~= "sbatch" or not uses_hetckpt(options) then
		return slurm.SUCCESS
	end
	if options["requeue"] == "unset" then
		options["requeue"] = "set"
	end
	if not options["open-mode"] then
		options["open-mode"] = "append"
	end
	-- What is not set reads 0@0.
	if not options["signal"] or options["signal"] == "0@0" then
		options["signal"] = SIGNAL
	end
	return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
	return slurm.SUCCESS
end
