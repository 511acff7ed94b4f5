"""What verl 0.9.1 needs to run on a machine without an accelerator, all by registration.

* `platform`: a verl platform named "cpu" (VERL_USE_EXTERNAL_MODULES, VERL_PLATFORM=cpu);
* `engine`: verl's FSDP engine registered for the device "cpu" (model.external_lib), with log
  probabilities only of the tokens that the policy wrote;
* `rollout`: a vLLM worker extension that loads new weights
  (rollout.engine_kwargs.vllm.worker_extension_cls);
* `executor`: vLLM's scheduler and model in one process
  (rollout.engine_kwargs.vllm.distributed_executor_backend).

The recipe group `exp/machine/cpu.yaml` names all four. `fork_server` makes the start short: the
launcher starts it where `trainer.device` is "cpu". Nothing of verl or vLLM is patched.
"""
