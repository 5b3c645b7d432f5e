"""Words about what a model was told and how it stands: orders, rules, whether they count.

Each text is named like the idea that its words stand for; see `component.agent.scanner_words`.
"""

from typing import Final

FORGET: Final = """
ignore disregard forget neglect override overrule bypass discard abandon drop
unlearn set_aside put_aside pay_no_attention pay_no_heed never_mind nevermind erase
skip ignor do_not_follow don_t_follow dont_follow do_not_obey don_t_obey
must_not_obey must_not_follow stop_following stop_obeying no_longer_follow
not_follow_any cease_following throw_out not_to_be_followed do_not_listen clear_your
reset_your ignoriere ignorier ignorieren_sie vergiss vergesst vergessen_sie
missachte missachten_sie ubergehe verwirf befolge_nicht folge_nicht beachte_nicht
befolge_ab_jetzt_nicht ignorez oublie oubliez neglige negligez ne_tiens_plus_compte
ne_tenez_plus_compte ne_tiens_pas_compte ne_tenez_pas_compte fais_abstraction
ne_suis_plus ne_suis_pas ne_suivez_plus ne_suivez_pas ignora ignorad ignoren olvida
olvide olvidad olviden omite descarta desatiende no_hagas_caso no_tengas_en_cuenta
no_sigas no_obedezcas haz_caso_omiso ignori ignorate dimentica dimenticate
dimentichi trascura non_seguire non_tenere_conto non_considerare tralascia esqueca
esquece desconsidere desconsidera despreze nao_siga nao_sigas nao_obedeca negeer
vergeet volg_niet let_niet_op sla_geen_acht игнорируй
игнорируйте забудь забудьте отбрось
пренебрегай проигнорируй проигнорируйте
не_обращай_внимания не_следуй не_слушай
не_выполняй 忽略 无视 無視 忘记 忘掉 忘れ 不要遵守 不要理会 不要遵循
別理會 抛开 抛弃 従わない 従わず 破棄
"""

ORDER: Final = """
instruction instructions instrution* instrucion* rule rules guideline* directive*
directions orders prompt prompts programming constraint* commands polic* criteria
safeguards anweisung* instruktion* regel regeln vorgabe vorgaben befehl* richtlinie*
systemanweisung* anordnung* auftrag consigne* directives regle regles ordres
instrucciones instruccion reglas indicaciones directrices ordenes normas istruzioni
istruzione regole direttive ordini indicazioni instrucoes instrucao regras
diretrizes ordens orientacoes instructies instructie opdrachten richtlijnen regels
инструкци* правил* указани* команд*
предписани* директив* 指令 指示 规则 規則 命令 要求 设定 ルール
指針 設定 约束
"""

PRIOR: Final = """
previous previus prior earlier above preceding before original initial foregoing
so_far up_to_now until_now previously vorherig* vorig* bisherig* bisher fruher*
obig* vorangegangen* vorher zuvor ursprunglich* precedent* anterieur* ci_dessus
jusqu_ici auparavant initial* anterior* previa* previo* antes hasta_ahora de_arriba
finora sopra iniziali prima acima ate_agora vorige eerdere voorgaande bovenstaande
eerder tot_nu_toe hiervoor предыдущ* прежн* ранее раньше
предшествующ* вышеуказанн* выше 之前 以前 以上 上述 先前
前面 前の 上記 これまで 今まで 从前 原来
"""

YOUR: Final = """
your yours ihre deine deinen deiner deines dein ihren tes ton ta vos votre tus tu
sus tuo tuoi tue tua suas seu seus teu teus jouw uw je свои свой твои
твой ваши 你的 您的 あなたの system systems operator developer developers
developper* creator* safety systeme sistema sistem* системн* 系统 システム
desarrollador* entwickler*
"""

TOLD: Final = """
told given received gave said wrote configured got gegeben gesagt erhalten bekommen
vorgegeben donnees recues recu dites dit dijeron dado dieron recibiste recibido
dicho date dato detto ricevuto hanno disseram recebeu deram dadas gekregen gegeven
opgedragen verteld дали говорили сказали получил
получила 收到 告诉你 给你 与えられた 言われた
"""

EVERYTHING: Final = """
everything all anything any every whatever what alles alle allen was tout toutes
tous ce_que todo todas todos lo_que tutte tutti tutto quello_che tudo o_que wat
все всё всех 所有 一切 全部 すべて 全て
"""

FOLLOW: Final = """
follow obey listen comply befolge folge folgen_sie gehorche suis suivez obeis
obeissez sigue siga obedece obedezca segui seguite obbedisci siga_apenas obedeca
volg gehoorzaam следуй следуйте слушай слушайся 听从
遵循 遵守 服从 按照 従って 従う 従え
"""

NOT: Final = """
not never don_t dont no_longer must_not nobody no without nicht nichts niemals nie
kein keine keinen ohne ne pas jamais sans rien nada nunca jamas sin non niente mai
senza nao sem niet niets nooit zonder не ничего никогда без 不要
不得 不能 别 勿 不 无需 没有 しない せず ないで ずに なく
"""

VOID: Final = """
void cancelled canceled replaced obsolete outdated revoked lifted superseded
no_longer_apply do_not_apply out_of_date invalid mistake supersede supersedes
take_precedence takes_precedence has_changed have_changed has_been_completed
ungultig aufgehoben gelten_nicht annulees invalides no_valen anuladas annullate
nao_valem vervallen отменены недействительны 作废 失效 无效
無効
"""

INSTEAD: Final = """
instead only nothing_else just stattdessen nur plutot uniquement seulement solo
solamente unicamente soltanto invece apenas somente alleen только вместо
只 直接 而是 だけ 代わりに
"""

PROMPT: Final = """
system_prompt system_prompts systemprompt system_instructions system_message
initial_prompt your_prompt your_instructions your_configuration
internal_configuration your_rules exact_instructions initial_instructions
hidden_prompt everything_above text_above words_above above_this_line your_context
the_prompt systemprompts systemanweisung* deinen_prompt prompt_systeme ton_prompt
votre_prompt prompt_du_systeme prompt_del_sistema tu_prompt prompt_di_sistema
tuo_prompt prompt_do_sistema prompt_de_sistema seu_prompt systeemprompt* je_prompt
системный_промпт системного_промпта
свой_промпт системную_подсказку 系统提示词 系统提示
提示词 システムプロンプト
"""

MUST: Final = """
must should shall have_to has_to need_to needs_to ought required_to are_to is_to
would_now always muss mussen soll sollen sollten hat_zu doit doivent devez dois debe
deben debes tiene_que deve devono devi dovete devem moet moeten должен
должна должны 必须 必須 应该 请 してください しなければ
"""

NEW: Final = """
new real true actual neue nouvelles nuevas nuove novas nieuwe новые 新 新しい
"""
