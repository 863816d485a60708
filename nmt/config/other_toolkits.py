"""What JoeyNMT, fairseq, Hugging Face, OpenNMT-py and Sockeye call a recipe key, for hints."""

from __future__ import annotations

# our key -> its names there, with ``_`` for ``-``
_ROWS = {
    "train.max_validations (epochs x updates of an epoch / train.validate_every)": "epochs "
    "max_epoch max_epochs num_epochs num_train_epochs max_num_epochs",
    "schedule.total_updates (kind: linear), or train.max_validations": "updates max_update "
    "max_updates max_steps steps train_steps num_training_steps",
    "train.stop_patience, in validations": "early_stopping early_stopping_patience patience "
    "max_num_checkpoint_not_improved",
    "train.min_lr": "stop_min_lr learning_rate_min",
    "time_limit, in hours": "stop_time_hours max_seconds max_time",
    "train.validate_every, in updates": "validation_freq valid_steps eval_steps eval_every "
    "checkpoint_interval save_checkpoint_steps save_steps save_interval_updates",
    "train.keep": "keep_best_ckpts keep_checkpoint keep_last_epochs save_total_limit",
    "score.select_by": "early_stopping_metric best_checkpoint_metric metric_for_best_model",
    "score.metrics": "eval_metric eval_metrics valid_metrics",
    "train.log_every, in updates": "logging_freq log_interval logging_steps report_every",
    "train.wandb": "wandb_project",
    "out, the run folder": "model_dir save_dir output_dir save_model output",
    "init.from (nmt-train --resume continues a run)": "load_model restore_file train_from "
    "finetune_from_model model_name_or_path pretrained resume_from_checkpoint",
    "data.batch_tokens, in tokens": "max_tokens batch_size batch_type max_sentences "
    "train_batch_size per_device_train_batch_size",
    "optim.accumulate, in batches per update": "batch_multiplier update_freq accum_count "
    "update_interval gradient_accumulation_steps",
    "data.max_pieces, in subwords, or data.max_len, in words": "max_sent_length max_length "
    "max_seq_len src_seq_length tgt_seq_length max_source_positions max_target_positions",
    "schedule.lr, or schedule.scale (kind: inverse_sqrt or val_decay)": "learning_rate "
    "initial_learning_rate peak_lr max_lr base_lr",
    "schedule.warmup_updates": "warmup warmup_steps num_warmup_steps learning_rate_warmup "
    "warmup_ratio",
    "schedule.kind": "lr_scheduler lr_scheduler_type scheduling scheduler decay_method",
    "schedule.decay": "decrease_factor lr_shrink learning_rate_decay",
    "optim.kind": "optimizer",
    "optim.betas, a list of two": "adam_betas adam_beta1 adam_beta2 beta1 beta2",
    "optim.eps": "adam_eps adam_epsilon",
    "optim.clip_norm": "clip_grad_norm clip_grad_val max_grad_norm gradient_clip_val grad_clip",
    "optim.label_smoothing": "label_smoothing_factor criterion",
    "precision": "fp16 bf16 amp model_dtype torch_dtype dtype",
    "device": "use_cuda no_cuda use_cpu cpu gpu device_id",
    "torchrun --nproc-per-node N, a command (docs/howto/gpus.md)": "world_size gpu_ranks "
    "n_gpu num_gpus distributed_world_size",
    "seed": "random_seed",
    "model.dim": "hidden_size d_model rnn_size word_vec_size embedding_dim embed_dim "
    "encoder_embed_dim transformer_model_size",
    "model.ffn_dim": "ff_size d_ff intermediate_size encoder_ffn_embed_dim transformer_ff",
    "model.heads": "num_heads nhead num_attention_heads encoder_attention_heads",
    "model.enc_layers and model.dec_layers": "layers num_layers n_layers num_hidden_layers",
    "model.enc_layers": "encoder_layers num_encoder_layers",
    "model.dec_layers": "decoder_layers num_decoder_layers",
    "model.dropout": "dropout_rate hidden_dropout_prob",
    "model.attn_dropout": "attention_dropout attention_probs_dropout_prob",
    "model.ffn_dropout": "activation_dropout relu_dropout",
    "model.activation": "activation_fn activation_function hidden_act",
    "model.norm_place": "layer_norm layer_norm_position pre_norm prenorm norm_first "
    "encoder_normalize_before decoder_normalize_before",
    "model.tie": "tied_embeddings tied_softmax share_embeddings share_all_embeddings "
    "share_decoder_input_output_embed tie_word_embeddings weight_tying_type",
    "model.init": "initializer param_init param_init_glorot",
    "src, a language code": "src_lang source_lang source_language",
    "tgt, a language code": "tgt_lang trg trg_lang target_lang target_language",
    "data.train, the path prefix of PREFIX.SRC and PREFIX.TGT": "trainpref train_file path_src",
    "data.dev, the path prefix of PREFIX.SRC and PREFIX.TGT": "valid validpref validation_file",
    "data.test, the path prefix of PREFIX.SRC and PREFIX.TGT": "testpref test_file",
    "segment.merges (kind: fastbpe), or segment.vocab_size (kind: sentencepiece)": "num_merges "
    "bpe_merges num_operations src_vocab_size tgt_vocab_size",
    "segment.codes (kind: fastbpe)": "bpe_codes",
    "segment.kind": "bpe subword_type src_subword_type tgt_subword_type tokenizer tokenizer_type",
    "segment.dropout": "bpe_dropout",
    "decode.beam": "beam_size num_beams",
    "decode.length_alpha": "lenpen length_penalty_alpha beam_alpha",
    "decode.max_len_offset, in subwords": "max_output_length max_new_tokens max_len_a max_len_b",
    "nmt-translate --n-best, an option of the command": "nbest n_best nbest_size "
    "num_return_sequences",
    "nmt-translate --no-repeat-ngram, an option of the command": "no_repeat_ngram_size "
    "block_ngram_repeat",
}
NAMES = {name: ours for ours, names in _ROWS.items() for name in names.split()}


def our_name(key: str) -> str | None:
    """Return our key for a key or an option of another toolkit, or None."""
    return NAMES.get(key.lstrip("-").replace("-", "_").lower())
