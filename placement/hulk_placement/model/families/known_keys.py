"""Keys of configs: features that are not counted, and for families that are not known all that is no feature."""

from __future__ import annotations

FEATURES = {
    r"^mamba|^ssm|^attn_layer_(period|offset)|^state_size$|^time_(mix|step)|^hybrid_": "state spaces",
    r"^(conv_|block_(auto_adjust_)?ff_|full_attn_idxs)|_conv$|^short_conv": "convolutions in place of attention",
    r"^linear_(attn|conv|key|value|num)|^lightning|^gated_delta|^full_attention_interval$": "linear attention",
    r"^index_(head|n_heads|topk)|^sparse_(attn|attention|topk)": "attention by a sparse index",
    r"^cross_attention_(layers|freq)": "cross-attention to another part of the model",
    r"^(hidden|vocab)_size_per_layer_input$|^altup|^laurel": "embeddings of each layer",
    r"^num_kv_shared_layers$|^cla_|^use_cla$": "keys and values shared by layers",
}
"""What a key with such a name, that is neither null, 0, false nor empty, says of a model of any family."""

ATTENTION_KINDS = ("attention", "full_attention", "sliding_attention", "chunked_attention")
"""Kinds of layers under `layer_types` that cost what attention costs, or less."""

EXPERT_KEYS = (
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "n_shared_experts",
    "shared_expert_intermediate_size",
    "mlp_only_layers",
    "mlp_layer_types",
    "first_k_dense_replace",
    "decoder_sparse_step",
    "moe_layer_freq",
)
COUNTED = (
    *EXPERT_KEYS,
    *("hidden_size", "n_embd", "intermediate_size", "n_inner", "num_hidden_layers", "n_layer", "vocab_size"),
    *("num_attention_heads", "n_head", "num_key_value_heads", "head_dim", "hidden_act", "hidden_activation"),
    *("activation_function", "max_position_embeddings", "n_positions", "n_ctx", "sequence_length", "rotary_dim"),
    *("attention_bias", "attention_out_bias", "qkv_bias", "mlp_bias", "use_bias", "lm_head_bias", "qk_layernorm"),
    *("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "qk_head_dim"),
    *("tie_word_embeddings", "layer_types", "num_nextn_predict_layers"),
)
"""Keys that are read of a family that is not known, or that say what is counted anyhow."""

HARMLESS = (
    r"^_|_token_id$|_token$|token_index$|dropout|pdrop|init|rope|rotary|dtype|eps(ilon)?$|cache|version|window|quant|"
    r"^(model_type|architectures|auto_map|name_or_path|is_(encoder_)?decoder|pretraining_tp|tokenizer_class|prefix)$|"
    r"^output_|^return_dict|^use_return|torchscript|label|^problem_type$|^finetuning_task$|^pruned_heads$|scal(e|ing)|"
    r"multiplier|softcap|_scalar$|^router_|^norm_topk_prob$|^topk?_|^n_group$|_group$|^scoring_func$|^seq_aux$|aux_loss|"
    r"^ep_size$|^chunk_size|^task_specific|^(temperature|max_length|min_length|num_beams|do_sample|early_stopping)$|"
    r"^attention_chunk_size$|^attn_implementation$|^gradient_checkpointing$|^reorder_|^cross_attention_hidden_size$|"
    r"^(encoder_)?no_repeat|^num_return|^repetition|^diversity|^length_penalty$|^bad_words|^forced_|^remove_invalid|"
    r"^exponential|^suppress|^begin_suppress|^typical_p$|^tf_legacy|^language$|^sep_|^resid_|^embd_|^clip_qkv$|^dim_model"
)
"""Names of keys that change neither what a layer holds nor what it computes."""
