"""Words about who is spoken to, as what, and where; and about those who speak of it.

Each text is named like the idea that its words stand for; see `component.agent.scanner_words`.
"""

from typing import Final

MODEL: Final = """
assistant assistants ai ais a_i llm llms gpt chatgpt chatbot* chat_bot claude gemini
copilot language_model* ai_model* agents ai_agent* summarizer* summariser*
automated_reader* automated_system* bots crawlers screening_model the_model model ki
ki_modell* ki_system* sprachmodell* assistenten assistent ia assistant_automatique
modele_de_langue modele_de_langage intelligence_artificielle asistente
modelo_de_lenguaje inteligencia_artificial asistentes modelo assistente
modello_linguistico intelligenza_artificiale modello modelo_de_linguagem assistentes
taalmodel* ai_assistent* ии ассистент* языковая_модель
языковой_модели языковые_модели нейросет*
помощник* 人工智能 助手 语言模型 大模型 模型 アシスタント モデル
"""

USER: Final = """
user users human operator reader owner person nutzer* benutzer* anwender*
utilisateur* usuario* utente utenti usuari* gebruiker* пользовател* 用户
使用者 ユーザー 利用者
"""

SYSTEM: Final = """
system sistema systeme systeem система 系统 システム
"""

YOU_ARE: Final = """
you_are you_re youre you_will_be act_as behave_as act_like du_bist sie_sind tu_es
vous_etes eres usted_es sei tu_sei voce_e voce_agora je_bent u_bent
ты_теперь ты_больше теперь_ты 你是 你现在 您现在 あなたは
"""

NOW: Final = """
now no_longer from_now_on from_this_point from_here_on henceforth ab_jetzt ab_sofort
nun desormais maintenant dorenavant a_partir_de_ahora desde_ahora ahora da_ora
d_ora_in_poi ora a_partir_de_agora agora vanaf_nu voortaan теперь отныне
从现在开始 从现在起 现在 今から これから 今後
"""

PRETEND: Final = """
pretend roleplay role_play simulate imagine act_as act_like impersonate
play_the_role tu_so tun_sie_so stell_dir_vor spiele fais_semblant joue_le_role
agis_comme finge actua_como imagina fingi fai_finta agisci_come finja aja_como
doe_alsof притворись представь веди_себя 假装 扮演 假设
振りをして 演じ ふりをして
"""

FREE: Final = """
without no free_from free_of freed_from freed beyond off lifts lift has_no have_no
ohne keine frei_von sans aucune aucun sin libre_de ningun ninguna senza privo_di sem
livre_de zonder geen без 没有 不受 无 無 なし ない のない
"""

LIMIT: Final = """
rules limits limit restriction restrictions filter filters constraints policies
policy ethics guidelines limitations moderation safeguards safety_checks checks_off
boundaries censorship regeln einschrankung* grenzen beschrankungen schranken regles
limite limites restriccion* reglas filtros regole limiti restrizioni filtri regras
restricoes regels beperkingen ограничени* правил* фильтр* 限制
规则 约束 制限 制約 ルール
"""

UNBOUND: Final = """
dan unfiltered unrestricted uncensored jailbroken jailbreak anything_now
never_refuses never_refuse amoral unlimited evil ungefiltert uneingeschrankt
unzensiert lehnst_nichts_ab ne_refuses_jamais nunca_se_niega sin_restricciones
senza_limiti sem_restricoes без_ограничений 不受限制 越狱 無制限
"""

MODE: Final = """
developer_mode god_mode dan_mode maintenance_mode unrestricted_mode admin_mode
debug_mode jailbreak_mode root_mode sudo_mode wartungsmodus entwicklermodus
mode_developpeur modo_desarrollador modalita_sviluppatore modo_desenvolvedor
ontwikkelaarsmodus режим_разработчика 开发者模式 開発者モード
"""

IF_YOU_ARE: Final = """
if_you_are if_you_re if_you_were when_you_are as_you_are wenn_du falls_du wenn_sie
falls_sie sofern_du si_vous_etes si_tu_es si_eres si_es_usted si_usted se_sei
se_siete se_voce se_for als_je als_u als_jij если_ты если_вы 如果你是
若你是 如果您是 読んでいる もしあなたが
"""

TALK: Final = """
injection injections attack attacks attacker attackers researcher researchers
advisory vulnerab* detector* bulletin cve jailbreaks exploit* red_team exfiltration
prompt_injection angriff* angreifer* forscher* attaque* chercheur* ataque* atacante*
inyeccion investigador* attacco attacchi attaccante ricercator* aanval* onderzoeker*
исследовател* атак* 攻击 研究人员 攻撃 研究者 注入攻击
"""

NOTE: Final = """
note notice attention important hinweis achtung nota attenzione atencion atencao
примечание внимание 注意 重要 to_the_ai to_the_assistant dear hey
hello an_die an_den pour para per_il para_o voor_de all to_ai to_any_ai to_automated
hinweis_fur
"""

TO_YOU: Final = """
you dir ihnen dich te vous toi ti vi lhe voce je jou тебе вам тебя 你 您
あなた
"""

GOAL: Final = """
task tasks goal goals objective* purpose job question aufgabe* ziel tache objectif
tarea objetivo compito obiettivo tarefa taak doel задач* 任务 タスク
"""

HERE: Final = """
this_page this_text this_document this_article this_product this_letter this_message
this_note this_mail this_candidate this_hotel this_file this_paragraph this_section
this_site this_issue this_invoice this_bill this_cv this_website the_page
next_paragraph our diesem_text diese_seite dieser_seite dieses_produkt ce_texte
cette_page ce_produit este_texto esta_pagina este_candidato questo_testo
questa_pagina deste_texto deze_tekst этому_тексту этот_текст
эту_страницу 本公司 这份 以下 下面 この文章 この文書 当社 这个
"""

KNOW: Final = """
know learn find_out notice see wissen erfahren savoir sepa sapere saber weten
знать 知道
"""

COLON: Final = """
:
"""

COMMA: Final = """
, 、 -
"""
